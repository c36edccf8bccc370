// How to use the adapter elsewhere, as programs; and its files.

const BASE = 'HuggingFaceTB/SmolLM2-135M-Instruct';

/** PEFT's adapter_config.json, which the file has in its metadata. @param {Uint8Array} file safetensors */
export function configOf(file) {
  const size = Number(new DataView(file.buffer, file.byteOffset).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(file.subarray(8, 8 + size)));
  const config = JSON.parse(header.__metadata__.adapter_config);
  return JSON.stringify({ ...config, task_type: 'CAUSAL_LM', base_model_name_or_path: BASE }, null, 2);
}

/** @param {string} prompt */
export const inJavaScript = (prompt) => `import { InferenceSession } from 'pyruntime';
import { TextGenerator } from 'pyruntime/extras';

const adapters = { mine: '/adapter_model.safetensors' }; // adapter_config.json is beside it
const session = await InferenceSession.create('/model.gguf', { ...TextGenerator.options(), adapters });
const writer = await TextGenerator.create(session, { tokenizer: '/model.gguf', adapters: { mine: 1 } });
for await (const piece of writer.stream(${JSON.stringify(prompt)}, { maxTokens: 60 })) console.log(piece);
`;

/** @param {string} prompt */
export const inPython = (prompt) => `from pyruntime import SessionOptions, TextGenerator  # pip install tokenizers

options = SessionOptions()
options.adapters = {"mine": "."}  # the folder with both files
writer = TextGenerator("model.gguf", options=options, adapters={"mine": 1.0})
print(writer.generate(${JSON.stringify(prompt)}, max_tokens=60).text)
`;

/** @param {string} prompt */
export const withPeft = (prompt) => `from peft import PeftModel  # pip install peft transformers torch
from transformers import AutoModelForCausalLM, AutoTokenizer

name = "${BASE}"
tokenizer = AutoTokenizer.from_pretrained(name)
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(name), ".")  # the folder with both files
tokens = model.generate(**tokenizer(${JSON.stringify(prompt)}, return_tensors="pt"), max_new_tokens=60)
print(tokenizer.decode(tokens[0]))
`;
