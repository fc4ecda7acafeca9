"""The texts with which the page opens: those of a task, or sentences in a language that the model can read."""

import unicodedata
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from electra.errors import ElectraError
from electra.json_files import read_json
from electra.readers.read import read_records
from electra.serving.batching import check_texts


@dataclass(frozen=True)
class Examples:
    """The same texts in every language.

    Attributes:
        sentences: for a model that finds wrong words; each has one word that does not fit.
        plain: for a fine-tuned model without its task's data: a good experience, a bad one, and a fact with a
            name and a year.
        question: about the last of `plain`.
    """

    sentences: tuple[str, str, str]
    plain: tuple[str, str, str]
    question: str


ENGLISH = Examples(
    (
        "The river flows from the mountains to the sea, where it elected a wide delta of sand and mud.",
        "The chef cooked the trombone in the kitchen, and the guests thanked him for the delicious meal.",
        "She was born in 1873 in Vienna, studied medicine, and became the first female blanket in the city.",
    ),
    (
        "The chef cooked a soup in the kitchen, and the guests thanked him for the delicious meal.",
        "The train was two hours late, and nobody told the passengers why.",
        "She was born in 1873 in Vienna, studied medicine, and became the first female doctor in the city.",
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
        (
            "Der Koch kochte eine Suppe in der Küche, und die Gäste dankten ihm für das köstliche Essen.",
            "Der Zug hatte zwei Stunden Verspätung, und niemand sagte den Fahrgästen, warum.",
            "Sie wurde 1873 in Wien geboren, studierte Medizin und wurde die erste Ärztin in der Stadt.",
        ),
        "Wo wurde sie geboren?",
    ),
    Examples(
        (
            "Le fleuve coule des montagnes vers la mer, où il a élu un large delta de sable et de boue.",
            "Le chef a cuit le trombone dans la cuisine, et les invités l'ont remercié pour ce bon repas.",
            "Elle est née en 1873 à Vienne, a étudié la médecine et fut la première couverture de la ville.",
        ),
        (
            "Le chef a préparé une soupe en cuisine, et les invités l'ont remercié pour ce bon repas.",
            "Le train avait deux heures de retard, et personne n'a dit pourquoi aux voyageurs.",
            "Elle est née en 1873 à Vienne, a étudié la médecine et fut la première femme médecin de la ville.",
        ),
        "Où est-elle née ?",
    ),
    Examples(
        (
            "El río fluye desde las montañas hasta el mar, donde eligió un amplio delta de arena y barro.",
            "El cocinero preparó el trombón en la cocina, y los invitados le agradecieron la deliciosa comida.",
            "Ella nació en 1873 en Viena, estudió medicina y fue la primera manta de la ciudad.",
        ),
        (
            "El cocinero preparó una sopa en la cocina, y los invitados le agradecieron la deliciosa comida.",
            "El tren llegó con dos horas de retraso, y nadie explicó el motivo a los pasajeros.",
            "Ella nació en 1873 en Viena, estudió medicina y fue la primera médica de la ciudad.",
        ),
        "¿Dónde nació ella?",
    ),
    Examples(
        (
            "Il fiume scorre dalle montagne al mare, dove ha eletto un ampio delta di sabbia e fango.",
            "Lo chef ha cucinato il trombone in cucina, e gli ospiti lo hanno ringraziato per il buon pasto.",
            "Nacque nel 1873 a Vienna, studiò medicina e divenne la prima coperta della città.",
        ),
        (
            "Lo chef ha cucinato una zuppa in cucina, e gli ospiti lo hanno ringraziato per il buon pasto.",
            "Il treno aveva due ore di ritardo, e nessuno ha spiegato il motivo ai passeggeri.",
            "Nacque nel 1873 a Vienna, studiò medicina e divenne la prima dottoressa della città.",
        ),
        "Dove nacque?",
    ),
    Examples(
        (
            "O rio corre das montanhas até o mar, onde elegeu um largo delta de areia e lama.",
            "O cozinheiro preparou o trombone na cozinha, e os convidados agradeceram a deliciosa refeição.",
            "Ela nasceu em 1873 em Viena, estudou medicina e foi a primeira manta da cidade.",
        ),
        (
            "O cozinheiro preparou uma sopa na cozinha, e os convidados agradeceram a deliciosa refeição.",
            "O trem atrasou duas horas, e ninguém explicou o motivo aos passageiros.",
            "Ela nasceu em 1873 em Viena, estudou medicina e foi a primeira médica da cidade.",
        ),
        "Onde ela nasceu?",
    ),
    Examples(
        (
            "Река течёт с гор к морю, где она избрала широкую дельту из песка и ила.",
            "Повар приготовил тромбон на кухне, и гости поблагодарили его за вкусный обед.",
            "Она родилась в 1873 году в Вене, изучала медицину и стала первым одеялом в городе.",
        ),
        (
            "Повар приготовил суп на кухне, и гости поблагодарили его за вкусный обед.",
            "Поезд опоздал на два часа, и никто не сказал пассажирам почему.",
            "Она родилась в 1873 году в Вене, изучала медицину и стала первой женщиной-врачом в городе.",
        ),
        "Где она родилась?",
    ),
    Examples(
        (
            "河水从山上流向大海，在那里选举了一片由泥沙组成的宽阔三角洲。",
            "厨师在厨房里煮了长号，客人们感谢他做的美味佳肴。",
            "她1873年出生于维也纳，学习医学，后来成为这座城市的第一位毯子。",
        ),
        (
            "厨师在厨房里煮了汤，客人们感谢他做的美味佳肴。",
            "火车晚点了两个小时，没有人告诉乘客原因。",
            "她1873年出生于维也纳，学习医学，后来成为这座城市的第一位女医生。",
        ),
        "她出生在哪里？",
    ),
    Examples(
        (
            "川は山から海へ流れ、そこで砂と泥の広い三角州を選挙した。",
            "料理人は台所でトロンボーンを煮て、客はおいしい食事に感謝した。",
            "彼女は1873年にウィーンで生まれ、医学を学び、その市で最初の女性の毛布になった。",
        ),
        (
            "料理人は台所でスープを作り、客はおいしい食事に感謝した。",
            "電車は二時間遅れたが、だれも乗客に理由を説明しなかった。",
            "彼女は1873年にウィーンで生まれ、医学を学び、その市で最初の女性の医師になった。",
        ),
        "彼女はどこで生まれましたか。",
    ),
    Examples(
        (
            "강은 산에서 바다로 흐르며, 그곳에서 모래와 진흙으로 된 넓은 삼각주를 선출했다.",
            "요리사는 부엌에서 트롬본을 요리했고, 손님들은 맛있는 식사에 감사했다.",
            "그녀는 1873년 빈에서 태어나 의학을 공부했고, 그 도시의 첫 여성 담요가 되었다.",
        ),
        (
            "요리사는 부엌에서 수프를 끓였고, 손님들은 맛있는 식사에 감사했다.",
            "기차가 두 시간 늦었지만, 아무도 승객들에게 이유를 말해 주지 않았다.",
            "그녀는 1873년 빈에서 태어나 의학을 공부했고, 그 도시의 첫 여성 의사가 되었다.",
        ),
        "그녀는 어디에서 태어났습니까?",
    ),
    Examples(
        (
            "नदी पहाड़ों से समुद्र तक बहती है, जहाँ उसने रेत और मिट्टी का एक चौड़ा डेल्टा चुना।",
            "रसोइये ने रसोई में तुरही पकाई, और मेहमानों ने स्वादिष्ट भोजन के लिए उसे धन्यवाद दिया।",
            "उनका जन्म 1873 में वियना में हुआ, उन्होंने चिकित्सा की पढ़ाई की और शहर की पहली महिला कंबल बनीं।",
        ),
        (
            "रसोइये ने रसोई में सूप पकाया, और मेहमानों ने स्वादिष्ट भोजन के लिए उसे धन्यवाद दिया।",
            "ट्रेन दो घंटे देर से आई, और किसी ने यात्रियों को इसका कारण नहीं बताया।",
            "उनका जन्म 1873 में वियना में हुआ, उन्होंने चिकित्सा की पढ़ाई की और शहर की पहली महिला डॉक्टर बनीं।",
        ),
        "उनका जन्म कहाँ हुआ था?",
    ),
    Examples(
        (
            "แม่น้ำไหลจากภูเขาลงสู่ทะเล และเลือกตั้งดินดอนสามเหลี่ยมอันกว้างใหญ่จากทรายและโคลน",
            "พ่อครัวปรุงทรอมโบนในครัว และแขกก็ขอบคุณเขาสำหรับอาหารแสนอร่อย",
            "เธอเกิดในปี 1873 ที่กรุงเวียนนา เรียนแพทย์ และกลายเป็นผ้าห่มหญิงคนแรกของเมือง",
        ),
        (
            "พ่อครัวปรุงซุปในครัว และแขกก็ขอบคุณเขาสำหรับอาหารแสนอร่อย",
            "รถไฟมาช้าสองชั่วโมง และไม่มีใครบอกเหตุผลแก่ผู้โดยสาร",
            "เธอเกิดในปี 1873 ที่กรุงเวียนนา เรียนแพทย์ และกลายเป็นแพทย์หญิงคนแรกของเมือง",
        ),
        "เธอเกิดที่ไหน",
    ),
    Examples(
        (
            "Dòng sông chảy từ núi ra biển, nơi nó bầu cử một vùng châu thổ rộng lớn bằng cát và bùn.",
            "Đầu bếp nấu cây kèn trong bếp, và các vị khách cảm ơn anh vì bữa ăn ngon.",
            "Bà sinh năm 1873 tại Viên, học ngành y và trở thành chiếc chăn nữ đầu tiên của thành phố.",
        ),
        (
            "Đầu bếp nấu súp trong bếp, và các vị khách cảm ơn anh vì bữa ăn ngon.",
            "Chuyến tàu trễ hai tiếng, và không ai nói cho hành khách biết lý do.",
            "Bà sinh năm 1873 tại Viên, học ngành y và trở thành nữ bác sĩ đầu tiên của thành phố.",
        ),
        "Bà sinh ở đâu?",
    ),
)
"""German, French, Spanish, Italian, Portuguese, Russian, Chinese, Japanese, Korean, Hindi, Thai, Vietnamese."""
UNKNOWN_TOKENS = 4
"""As many tokens does each character count that is not in the vocabulary."""
CLEARLY_FEWER = 0.9
"""A language is preferred to English if it needs at most this share of the tokens per character."""
SAMPLED_TOKENS = 5000
"""At most about so many entries of a vocabulary, evenly spread, show the script that it is made for."""

MAX_SEARCHED, MAX_CHARACTERS, MAX_SHOWN = 1000, 200, 3
"""Examples of dev among which short ones are searched, characters of a short one, and how many are shown."""


def read_dev_inputs(out: Path) -> list[list[str]]:
    """Short examples of different answers, of the dev part of a fine-tuning: a text each, or a pair of texts.

    They are read from the predictions beside the model. The model's own folder and its exports have no text of
    their data, so that whoever gets them does not get a private text.

    Args:
        out: the output of `electra finetune`; other folders have no such examples.
    """
    inputs: dict[str, list[str]] = {}
    try:
        seed = read_json(out / "results.json").get("best_seed")
        predictions = read_records(out / f"seed-{seed}" / "dev.jsonl") if isinstance(seed, int) else ()
        for _, record in islice(predictions, MAX_SEARCHED):
            texts, gold = _texts(record), record.get("gold")
            is_blank = isinstance(gold, list) and not {*map(str, gold)} - {"O"}  # no label, or no entity
            if texts and not is_blank and sum(map(len, texts)) <= MAX_CHARACTERS:
                check_texts(texts)
                inputs.setdefault(str(gold), texts)
            if len(inputs) == MAX_SHOWN:
                break
    except (ElectraError, OSError):  # no fine-tuning, or a file is damaged
        pass
    return list(inputs.values())


def _texts(record: dict[str, Any]) -> list[str]:
    """The text or texts of a prediction; none for questions, whose passages are not in the file."""
    if isinstance(words := record.get("words"), list):
        return [" ".join(map(str, words))]
    return [text for name in ("text", "pair") if isinstance(text := record.get(name), str)]


def find_examples(tokenizer: Tokenizer, unknown: int) -> Examples:
    """The examples in the language that the vocabulary is most likely made for.

    It is one in the script of most of the vocabulary's entries: there is none for Arabic, for instance, whose
    vocabularies get English examples. Of the languages of one script, it needs the fewest tokens for its text. In
    Latin letters it is English unless another one needs clearly fewer.

    Args:
        unknown: the id of the token for what is not in the vocabulary.
    """

    def tokens_per_character(examples: Examples) -> float:
        text = "\n".join(examples.sentences)
        encoded = tokenizer.encode(text, add_special_tokens=False)
        # An unknown token is a character, a word or a run of words, which depends on the kind of tokenizer.
        pairs = zip(encoded.ids, encoded.offsets, strict=True)
        missing = sum(end - start for token, (start, end) in pairs if token == unknown)
        return (len(encoded.ids) + UNKNOWN_TOKENS * missing) / len(text)

    script = _main_script(tokenizer)
    readable = [one for one in (ENGLISH, *OTHERS) if script in set(map(_script, "".join(one.sentences)))]
    best = min(readable, key=tokens_per_character, default=ENGLISH)
    if ENGLISH in readable and tokens_per_character(best) > CLEARLY_FEWER * tokens_per_character(ENGLISH):
        return ENGLISH
    return best


def _main_script(tokenizer: Tokenizer) -> str | None:
    """The script of most entries of a vocabulary; None: they have no letters."""
    size = tokenizer.get_vocab_size()
    tokens = (tokenizer.decode([number]) for number in range(0, size, max(1, size // SAMPLED_TOKENS)))
    letters = (next(filter(str.isalpha, token), None) for token in tokens)
    counts = Counter(_script(letter) for letter in letters if letter)
    return max(counts, key=counts.__getitem__, default=None)


def _script(character: str) -> str:
    """The first word of a letter's name in Unicode, which is its script; "" for what is no letter."""
    return unicodedata.name(character, "").partition(" ")[0] if character.isalpha() else ""
