"""The sentences with which the page opens, in a language that the model can read."""

import re
from dataclasses import dataclass

from tokenizers import Tokenizer


@dataclass(frozen=True)
class Examples:
    """The same texts in every language.

    Attributes:
        sentences: each has one word that does not fit.
        question: about the last sentence.
    """

    sentences: tuple[str, str, str]
    question: str


ENGLISH = Examples(
    (
        "The river flows from the mountains to the sea, where it elected a wide delta of sand and mud.",
        "The chef cooked the trombone in the kitchen, and the guests thanked him for the delicious meal.",
        "She was born in 1873 in Vienna, studied medicine, and became the first female blanket in the city.",
    ),
    "Where was she born?",
)
OTHERS = (
    Examples(
        (
            "Der Fluss fließt von den Bergen zum Meer, wo er ein breites Delta aus Sand und Schlamm wählte.",
            "Der Koch kochte die Posaune in der Küche, und die Gäste dankten ihm für das köstliche Essen.",
            "Sie wurde 1873 in Wien geboren, studierte Medizin und wurde die erste Decke in der Stadt.",
        ),
        "Wo wurde sie geboren?",
    ),
    Examples(
        (
            "Le fleuve coule des montagnes vers la mer, où il a élu un large delta de sable et de boue.",
            "Le chef a cuit le trombone dans la cuisine, et les invités l'ont remercié pour ce bon repas.",
            "Elle est née en 1873 à Vienne, a étudié la médecine et fut la première couverture de la ville.",
        ),
        "Où est-elle née ?",
    ),
    Examples(
        (
            "El río fluye desde las montañas hasta el mar, donde eligió un amplio delta de arena y barro.",
            "El cocinero preparó el trombón en la cocina, y los invitados le agradecieron la deliciosa comida.",
            "Ella nació en 1873 en Viena, estudió medicina y fue la primera manta de la ciudad.",
        ),
        "¿Dónde nació ella?",
    ),
    Examples(
        (
            "Il fiume scorre dalle montagne al mare, dove ha eletto un ampio delta di sabbia e fango.",
            "Lo chef ha cucinato il trombone in cucina, e gli ospiti lo hanno ringraziato per il buon pasto.",
            "Nacque nel 1873 a Vienna, studiò medicina e divenne la prima coperta della città.",
        ),
        "Dove nacque?",
    ),
    Examples(
        (
            "O rio corre das montanhas até o mar, onde elegeu um largo delta de areia e lama.",
            "O cozinheiro preparou o trombone na cozinha, e os convidados agradeceram a deliciosa refeição.",
            "Ela nasceu em 1873 em Viena, estudou medicina e foi a primeira manta da cidade.",
        ),
        "Onde ela nasceu?",
    ),
    Examples(
        (
            "Река течёт с гор к морю, где она избрала широкую дельту из песка и ила.",
            "Повар приготовил тромбон на кухне, и гости поблагодарили его за вкусный обед.",
            "Она родилась в 1873 году в Вене, изучала медицину и стала первым одеялом в городе.",
        ),
        "Где она родилась?",
    ),
    Examples(
        (
            "河水从山上流向大海，在那里选举了一片由泥沙组成的宽阔三角洲。",
            "厨师在厨房里煮了长号，客人们感谢他做的美味佳肴。",
            "她1873年出生于维也纳，学习医学，后来成为这座城市的第一位毯子。",
        ),
        "她出生在哪里？",
    ),
    Examples(
        (
            "川は山から海へ流れ、そこで砂と泥の広い三角州を選挙した。",
            "料理人は台所でトロンボーンを煮て、客はおいしい食事に感謝した。",
            "彼女は1873年にウィーンで生まれ、医学を学び、その市で最初の女性の毛布になった。",
        ),
        "彼女はどこで生まれましたか。",
    ),
    Examples(
        (
            "강은 산에서 바다로 흐르며, 그곳에서 모래와 진흙으로 된 넓은 삼각주를 선출했다.",
            "요리사는 부엌에서 트롬본을 요리했고, 손님들은 맛있는 식사에 감사했다.",
            "그녀는 1873년 빈에서 태어나 의학을 공부했고, 그 도시의 첫 여성 담요가 되었다.",
        ),
        "그녀는 어디에서 태어났습니까?",
    ),
)
"""German, French, Spanish, Italian, Portuguese, Russian, Chinese, Japanese, Korean."""
UNIT = re.compile(r"[\u3040-\u9fff]|[^\W\u3040-\u9fff]+|[^\w\s]")
"""A Chinese or Japanese character, a word of other scripts, or a punctuation mark."""
GOOD, POOR = 1.35, 3.0
"""Tokens per unit of a vocabulary that is made for a language, and of one that is not."""
UNKNOWN_TOKENS = 8
"""As many tokens does a token count that is not in the vocabulary."""


def find_examples(tokenizer: Tokenizer, unknown: int) -> Examples:
    """The examples in the language that the vocabulary is most likely made for.

    A vocabulary needs few tokens for texts of its own language. One that reads English well, or no language, gets
    English examples.

    Args:
        unknown: the id of the token for what is not in the vocabulary.
    """

    def count(examples: Examples) -> int:
        encoded = tokenizer.encode_batch(list(examples.sentences), add_special_tokens=False)
        ids = [token for one in encoded for token in one.ids]
        return len(ids) + (UNKNOWN_TOKENS - 1) * ids.count(unknown)

    def per_unit(examples: Examples) -> float:
        return count(examples) / sum(len(UNIT.findall(sentence)) for sentence in examples.sentences)

    best = min((ENGLISH, *OTHERS), key=count)
    return ENGLISH if per_unit(ENGLISH) <= GOOD or per_unit(best) > POOR else best
