"""Writes pyruntime/host/unicode_tables.py: the classes and cases of characters as RE2 has them, asked from the RE2 in
onnxruntime, one pattern for each class: `python -m scripts.unicode_tables` (minutes; after an update of onnxruntime).
"""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import helper

CATEGORIES = (
    "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
)  # Cs: surrogates are in no text; Cn: RE2 has no name for it
SCRIPTS = """
Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali Bhaiksuki Bopomofo
Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham Cherokee Chorasmian Common
Coptic Cuneiform Cypriot Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra Duployan Egyptian_Hieroglyphs
Elbasan Elymaic Ethiopic Garay Georgian Glagolitic Gothic Grantha Greek Gujarati Gunjala_Gondi Gurmukhi Gurung_Khema
Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi
Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kawi Kayah_Li Kharoshthi Khitan_Small_Script Khmer Khojki
Khudawadi Kirat_Rai Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani Makasar Malayalam Mandaic
Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao
Modi Mongolian Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari New_Tai_Lue Newa Nko Nushu
Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Ol_Onal Old_Hungarian Old_Italic Old_North_Arabian Old_Permic Old_Persian
Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa
Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham SignWriting Sinhala Sogdian
Sora_Sompeng Soyombo Sundanese Sunuwar Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil
Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Todhri Toto Tulu_Tigalari Ugaritic Vai Vithkuqi Wancho
Warang_Citi Yezidi Yi Zanabazar_Square
""".split()
TARGET = Path(__file__).parents[1] / "pyruntime" / "host" / "unicode_tables.py"
POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def matching(pattern: str, points: list[int]) -> list[int]:
    """The points whose characters RE2 matches. Raises if the pattern is invalid."""
    node = helper.make_node("RegexFullMatch", ["x"], ["y"], pattern=pattern)
    x, y = (helper.make_tensor_value_info(n, t, ["n"]) for n, t in (("x", 8), ("y", 9)))
    made = helper.make_model(
        helper.make_graph([node], "g", [x], [y]), opset_imports=[helper.make_opsetid("", 20)], ir_version=9
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(made.SerializeToString(), options)
    (found,) = session.run(None, {"x": np.array([chr(c) for c in points], object)})
    return [c for c, hit in zip(points, found, strict=True) if hit]


def runs(names: list[str], points: list[int]) -> tuple[list[str], str]:
    """The names that RE2 knows, and the runs of code points of equal class."""
    known: list[str] = []
    of: dict[int, int] = {}
    for name in names:
        try:
            found = matching(rf"\p{{{name}}}", points)
        except onnxruntime.capi.onnxruntime_pybind11_state.Fail:
            continue
        of |= dict.fromkeys(found, len(known))
        known.append(name)
    out, last, count = [], of.get(0), 0
    for c in range(0x110001):
        number = of.get(c) if c < 0x110000 else -1
        if number != last:
            out.append(base36(count) + ("" if last is None else f".{last}"))
            last, count = number, 0
        count += 1
    return known, " ".join(out)


def base36(n: int) -> str:
    return np.base_repr(n, 36).lower()


def cases(points: list[int]) -> str:
    """The groups of characters that are equal but for their case: the first one as the difference from that of the
    group before, the others as the difference from the first one."""
    cased = set()
    for c in points:
        forms = {chr(c).lower(), chr(c).upper(), chr(c).title(), chr(c).casefold()}
        cased |= {c, *[ord(form) for form in forms if len(form) == 1]} if len(forms) > 1 else set()
    seen: set[int] = set()
    out, before = [], 0
    for c in sorted(cased):
        group = [] if c in seen else matching(rf"(?i)\x{{{c:x}}}", sorted(cased))
        seen.update(group)
        if len(group) > 1:
            out.append(".".join(base36(d - c if n else c - before) for n, d in enumerate(group)))
            before = c
    return " ".join(out)


def main() -> None:
    (categories, by_category), (scripts, by_script) = runs(CATEGORIES, POINTS), runs(SCRIPTS, POINTS)
    write(categories, by_category, scripts, by_script, cases(POINTS))


def write(categories: list[str], by_category: str, scripts: list[str], by_script: str, cases: str) -> None:
    def text(name: str, value: str) -> str:
        return f'{name} = """\n{textwrap.fill(value, 118, break_on_hyphens=False)}\n"""\n'

    TARGET.write_text(
        f'''"""Classes of characters, written by scripts/unicode_tables.py; read by unicode_classes.

Numbers are in base 36. BY_CATEGORY and BY_SCRIPT are runs of code points from 0 on: their count, and after a point the
place of their class in the list, if they have one. CASES are groups of characters that differ in case: the first one
less that of the group before, and the others less the first one.
"""

CATEGORIES = "{" ".join(categories)}".split()
{text("SCRIPTS", " ".join(scripts)).rstrip()}.split()
{text("BY_CATEGORY", by_category)}
{text("BY_SCRIPT", by_script)}
{text("CASES", cases)}'''.rstrip()
        + "\n"
    )


if __name__ == "__main__":
    main()
