"""The files of the package form layers: no file imports itself through others, not even inside functions."""

import ast
from collections.abc import Iterator
from pathlib import Path

from electra.registry import checkpoint_formats, encoders, objectives, tasks

SOURCE = Path(__file__).parents[1] / "src"


def imports_of(tree: ast.AST) -> Iterator[str]:
    """Yield the absolute names that a file imports, also inside functions, but not for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            node = ast.Module(node.orelse, [])
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "the package has absolute imports only"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from imports_of(node)


def read_imports(source: Path) -> dict[str, set[str]]:
    """Return the modules of a source folder and the modules of the same folder that each one imports."""
    files = {path.relative_to(source).with_suffix(""): path for path in sorted(source.rglob("*.py"))}
    modules = {".".join(path.parts).removesuffix(".__init__"): file for path, file in files.items()}
    imports = {}
    for module, file in modules.items():
        names = imports_of(ast.parse(file.read_text(encoding="utf-8")))
        # `from package import name` imports the module package.name, if there is one, else the package.
        targets = {name if name in modules else name.rpartition(".")[0] for name in names}
        imports[module] = targets & modules.keys() - {module}
    return imports


def find_cycle(imports: dict[str, set[str]]) -> list[str]:
    """Return the modules of one cycle, the first one again at the end; empty if there is none."""
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str]:
        if module in path:
            return [*path[path.index(module) :], module]
        if module not in done:
            for target in sorted(imports[module]):
                if cycle := visit(target, [*path, module]):
                    return cycle
            done.add(module)
        return []

    return next((cycle for module in imports if (cycle := visit(module, []))), [])


def test_no_file_imports_itself_through_others() -> None:
    imports = read_imports(SOURCE)
    assert len(imports) > 200 and "electra.errors" in imports["electra.config"]
    cycle = find_cycle(imports)
    assert not cycle, f"a cycle of imports: {' -> '.join(cycle)}; move what both ends need into a lower module"


def test_a_cycle_is_found_in_functions_but_not_for_type_checkers(tmp_path: Path) -> None:
    (tmp_path / "upper.py").write_text("import lower\n")
    (tmp_path / "lower.py").write_text("if TYPE_CHECKING:\n    from upper import Name\n")
    assert find_cycle(read_imports(tmp_path)) == []
    (tmp_path / "lower.py").write_text("def function():\n    from upper import Name\n")
    assert find_cycle(read_imports(tmp_path)) == ["lower", "upper", "lower"]


def compared_strings(tree: ast.AST) -> Iterator[str]:
    """Yield the strings that a file compares something with."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for operand in [node.left, *node.comparators]:
                yield from (
                    part.value for part in ast.walk(operand)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                )  # fmt: skip
        elif isinstance(node, ast.MatchValue) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


def test_no_file_compares_the_name_of_an_entry_of_a_registry() -> None:
    """Their files say what they need and offer (capabilities, `describe`, ...), and the others ask for that."""
    other_meanings = {
        ("formats/bert.py", "bert"),  # model_type of Hugging Face folders
        ("flops.py", "masked-lm"), ("flops.py", "replaced-token"),  # heads in FLOP counts
        ("formats/base.py", "pair"), ("formats/bert.py", "pair"),  # names of weights of heads over pairs
        ("encoders/tables.py", "bert"),  # the older setting `positions` in place of `kind`
    }  # fmt: skip
    kinds = {name for registry in (objectives, encoders, tasks, checkpoint_formats) for name in registry.names()}
    compared = [
        f"{file.relative_to(SOURCE)}: {text!r}"
        for file in sorted(SOURCE.rglob("*.py"))
        for text in set(compared_strings(ast.parse(file.read_text(encoding="utf-8")))) & kinds
        if not any(file.as_posix().endswith(name) and text == other for name, other in other_meanings)
    ]
    assert not compared, f"compared with kind names: {', '.join(compared)}; ask the config class for a property"
