"""Models for tests/test_serving.py, as ONNX's text."""

HEAD = '<ir_version: 10, opset_import: ["" : 20]>'
ENDLESS = f"""{HEAD} g (float[n, n] x) => (float[n, n] y) <bool yes = {{1}}> {{
    y = Loop (, yes, x) <body = b (int64 i, bool c, float[n, n] v) => (bool d, float[n, n] w) {{
        d = Identity (c)  w = Sin (v) }}> }}"""
LOGARITHM = f"{HEAD} g (float[n] x) => (float[n] y) {{ y = Log (x) }}"
FIXED = f"{HEAD} g (float[4] x) => (float[4] y) {{ y = Log (x) }}"
TEXTS = f"""{HEAD} g (string[n] x) => (string[n] y) <string[1] end = {{"x"}}> {{
    lower = StringNormalizer <case_change_action = "LOWER"> (x)  y = StringConcat (lower, end) }}"""
