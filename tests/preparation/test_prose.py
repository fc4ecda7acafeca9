"""What counts as prose, and how markup is removed."""

import pytest

from electra.preparation.prose import (
    find_docstrings,
    is_prose,
    keep_letters,
    prose_sentences,
    remove_markup,
    split_paragraphs,
)


def cleaned(text: str) -> list[str]:
    return [" ".join(kept) for block in split_paragraphs(text) if (kept := list(prose_sentences(block)))]


SOURCE = (
    '''
"""Module."""
# a comment with a stray """ in it
NAME = """assigned, hence no documentation"""
TEXT = "a string with \\" and '''
    + "'''"
    + ''' in it"
CALL = call("it's", """not documentation
""", """nor this""")

class Thing:
    r"""Class with a \\d."""

    def method(self) -> str:
        \'\'\'Method, \\
continued.\'\'\'
        return f"""
{self} formatted
"""

add_docstring(
    Thing,
    """
    Added later.
    """,
)
'''
)


def test_docstrings_are_found_in_order_and_other_strings_are_not() -> None:
    assert [text.strip() for text in find_docstrings(SOURCE)] == [
        "Module.",
        r"Class with a \d.",
        "Method, continued.",
        "Added later.",
    ]


def test_docstrings_agree_with_the_parser() -> None:
    import argparse as module
    import ast
    import inspect

    source = inspect.getsource(module)
    nodes = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
    ]
    expected = {text for node in nodes if (text := ast.get_docstring(node, clean=False))}
    assert len(expected) > 10
    assert set(find_docstrings(source)) == expected


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("See :func:`~os.path.join` or :py:class:`Path`.", "See os.path.join or Path."),
        (
            "A ``literal``, a `.Figure` and `.pyplot.plot` but `.npy`.",
            "A literal, a Figure and pyplot.plot but .npy.",
        ),
        ("A **bold** and an *emphasised* word, 2 * 3 * 4.", "A bold and an emphasised word, 2 * 3 * 4."),
        ("Read `the manual <https://example.org>`_ :ref:`first <target>`.", "Read the manual first."),
        ("Read [the manual](https://example.org/a) first.", "Read the manual first."),
        ("It lies at https://example.org/a?b=c now.", "It lies at now."),
        ("The [`Trainer`] is ![badge](x.svg) used.", "The Trainer is used."),
        ("This holds [1]_ for all.", "This holds for all."),
        ("An index a[i][j](k) stays.", "An index a[i][j](k) stays."),
        ("A <b>tag</b> and |name|.", "A tag and name."),
        ("\u201cCurly\u201d quotes \u2013 and dashes.", '"Curly" quotes - and dashes.'),
    ],
)
def test_inline_markup_is_removed(marked: str, expected: str) -> None:
    assert remove_markup(marked) == expected


@pytest.mark.parametrize(
    "lost", ["Where :math:`x^2` is the square of the value.", "It is described in [3]_ by the authors."]
)
def test_a_sentence_with_a_removed_part_is_dropped(lost: str) -> None:
    assert list(prose_sentences(f"The first sentence is here to stay. {lost}")) == [
        "The first sentence is here to stay."
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Return the sum of the elements along the axis.",
        "It is used with pathlib.Path when the name of a file is given.",
        "the number of the rows that are read at a time",
        "This is what it returns.",
    ],
)
def test_prose_is_kept(text: str) -> None:
    assert is_prose(text)


@pytest.mark.parametrize(
    "text",
    [
        "This is a sum.",
        "x_train, y_train = load_data(path_to_file, n_rows=3) for the_model",
        "Tensor Tensor Tensor Tensor Tensor Tensor Tensor",
        "the name of a file",
        "Dies ist ein Satz über die Wörter in der Datei.",
        "| a | b | c | of the | to the |",
    ],
)
def test_other_text_is_dropped(text: str) -> None:
    assert not is_prose(text)


@pytest.mark.parametrize("directive", ["versionadded", "versionchanged", "deprecated"])
def test_the_version_in_a_directive_is_no_text(directive: str) -> None:
    text = f".. {directive}:: 1.2 The order of the axes can now be given."
    assert list(split_paragraphs(text)) == ["The order of the axes can now be given."]


NUMPYDOC = """
Compute the mean of the values along an axis.

.. versionadded:: 1.2
   The order of the axes can now be given.

.. math:: a = b

   the formula is in here and not to be seen

Parameters
----------
values : array_like of shape (n_rows, n_columns)
    The values of which the mean is computed.
axis : int, optional
    The axis along which the mean is computed.

Returns
-------
ndarray
    An array that holds the mean of the values.

See Also
--------
median : The median of the values along an axis.

Examples
--------
The mean of a list is computed like this:

>>> mean([1, 2])
This output is not a sentence of the text.

An example of a literal block is the following one::

    This is code that looks like a sentence of text.

The text goes on after the literal block.
"""


def test_numpydoc_keeps_descriptions_and_drops_structure() -> None:
    assert cleaned(NUMPYDOC) == [
        "Compute the mean of the values along an axis.",
        "The order of the axes can now be given.",
        "The values of which the mean is computed.",
        "The axis along which the mean is computed.",
        "An array that holds the mean of the values.",
        "The mean of a list is computed like this:",
        "An example of a literal block is the following one:",
        "The text goes on after the literal block.",
    ]


GOOGLE = """Read the file and return all of its lines.

    Args:
        path (`Path` or `str`, *optional*): The file that is to be read, which
            may be compressed.
        size: How many bytes of it are read at a time.

    :param name: The name of the file that is read.
    :type name: the type of it is not a sentence at all
    :returns: A list with the lines of the file.

    - The first item of the list is a sentence.
    - The second item of the list is another one.

    ```python
    This is the code that would be in the fence.
    ```
    It goes on here: the line began with a word
    and: a colon in the middle of the running text.
"""


def test_google_sections_fields_lists_and_fences() -> None:
    assert cleaned(GOOGLE) == [
        "Read the file and return all of its lines.",
        "The file that is to be read, which may be compressed.",
        "How many bytes of it are read at a time.",
        "The name of the file that is read.",
        "A list with the lines of the file.",
        "The first item of the list is a sentence.",
        "The second item of the list is another one.",
        "It goes on here: the line began with a word and: a colon in the middle of the running text.",
    ]


def test_tables_and_headers_are_dropped() -> None:
    text = """
    # A header of Markdown that is as long as a sentence

    | The column of the table | and the other one |
    |---|---|
    | this is the cell of a row | and this is the other |

    =====  =====
    This   is the table of the text in columns
    =====  =====

    > [!TIP]
    > This is the advice that is worth to be kept.
    """
    assert "This is the advice that is worth to be kept." in cleaned(text)
    assert not any("header" in line or "cell" in line or "column " in line for line in cleaned(text))


def test_sentences_are_split_at_full_stops_but_not_at_abbreviations() -> None:
    text = "It is used for many things, e.g. The names of the files. This is another sentence (i.e. One of two)."
    assert len(list(prose_sentences(text))) == 2


def test_duplicates_differ_in_numbers_and_case_only() -> None:
    assert keep_letters("Version 1.2 of THE file.") == keep_letters("version 13 of the file")
    assert keep_letters("one file") != keep_letters("two files")
