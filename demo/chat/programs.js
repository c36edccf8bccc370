// The chat as programs of the visitor's own.

/** @typedef {import('./assistant.js').Message} Message */
/** @typedef {import('./assistant.js').Settings} Settings */

/** @param {readonly Message[]} messages @param {(message: Message) => string} by */
const listed = (messages, by) => messages.map((message) => `\n  ${by(message)},`).join('');

/** @param {readonly Message[]} messages @param {Settings} settings @param {string} model its file */
export const inJavaScript = (messages, { temperature, topP, repetitionPenalty, maxTokens, format }, model) => `import { InferenceSession } from 'pyruntime';
import { TextGenerator } from 'pyruntime/extras';

const session = await InferenceSession.create('/${model}', { ...TextGenerator.options(), cache: true });
const writer = await TextGenerator.create(session, { tokenizer: '/${model}' });

const messages = [${listed(messages, ({ role, content }) => `{ role: ${JSON.stringify(role)}, content: ${JSON.stringify(content)} }`)}
];
const settings = { temperature: ${temperature}, topP: ${topP}, repetitionPenalty: ${repetitionPenalty}, maxTokens: ${maxTokens}${format ? `, format: ${JSON.stringify(format)}` : ''} };
for await (const piece of writer.stream(messages, settings)) console.log(piece);
`;

/** @param {readonly Message[]} messages @param {Settings} settings @param {string} model its file */
export const inPython = (messages, { temperature, topP, repetitionPenalty, maxTokens, format }, model) => `from pyruntime import TextGenerator  # pip install tokenizers jinja2${format ? ' llguidance' : ''}

writer = TextGenerator("${model}")

messages = [${listed(messages, ({ role, content }) => `{"role": ${JSON.stringify(role)}, "content": ${JSON.stringify(content)}}`)}
]
settings = {"temperature": ${temperature}, "top_p": ${topP}, "repetition_penalty": ${repetitionPenalty}, "max_tokens": ${maxTokens}${format ? `, "format": {"schema": ${JSON.stringify(JSON.stringify(format.schema))}}` : ''}}
for piece in writer.stream(messages, **settings):
    print(piece, end="", flush=True)
`;
