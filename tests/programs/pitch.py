"""swift-f0 (Lars Nieradzik) finds the pitch of a sound."""

import json

import numpy as np
from swift_f0 import SwiftF0

seconds = np.arange(32000) / 16000
tone = np.sin(2 * np.pi * np.cumsum(220 + 60 * seconds) / 16000)
sound = (tone + np.random.default_rng(0).normal(0, 0.01, tone.size)).astype(np.float32)  # as recorded, not pure
result = SwiftF0().detect(sound, 16000)
print(json.dumps([result.pitch_hz[::8].tolist(), result.confidence[::8].tolist()]))
