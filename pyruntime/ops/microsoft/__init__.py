"""com.microsoft's operators. Spec: https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md"""

MICROSOFT = "com.microsoft"
