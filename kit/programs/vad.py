"""@ricky0123/vad-web in pages: by script tags, and bundled with this package in place of onnxruntime-web."""

from __future__ import annotations

import subprocess
import wave
from pathlib import Path

import numpy as np

from kit import zoo
from kit.chromium import ROOT
from kit.speech import RATE

BUNDLES = ROOT / "build" / "pages"

# With script tags the program looks for the global `ort`.
SEGMENTS = """async () => {
  const file = await fetch('/built/speech.wav');
  const { audio, sampleRate } = await vad.utils.audioFileToArray(await file.blob());
  const detector = await vad.NonRealTimeVAD.new({ redemptionMs: 200, minSpeechMs: 100 });
  const found = [];
  for await (const { audio: part, start, end } of detector.run(audio, sampleRate)) {
    found.push({ start, end, samples: part.length, loudest: Math.max(...part) });
  }
  return found;
}"""

# Our build listens to the microphone; then both builds process the recorded frames in order. Live results may differ:
# the package never waits for a run (docs/api/javascript.md), and on a busy processor a frame arrives before the
# previous run ends.
LISTEN = """async (count) => {
  const told = { heard: [], ours: [], theirs: [] };
  const frames = [];
  const full = Promise.withResolvers();
  const options = (name, onnxWASMBasePath) => ({
    model: 'v5', baseAssetPath: '/vad/', onnxWASMBasePath, redemptionMs: 200, minSpeechMs: 100,
    onFrameProcessed: ({ isSpeech }, frame) => {
      told[name].push(isSpeech);
      if (name === 'heard' && frames.push(frame.slice()) === count) full.resolve();
    },
    onSpeechStart: () => told[name].push('speech'),
    onSpeechEnd: (audio) => told[name].push(`${audio.length} samples`),
    onVADMisfire: () => told[name].push('a misfire'),
  });
  const live = await vad_ours.MicVAD.new(options('heard', '/dist/'));
  await full.promise;
  await live.destroy();
  for (const [name, { MicVAD }, path] of [['ours', vad_ours, '/dist/'], ['theirs', vad_theirs, '/onnxruntime-web/']]) {
    const detector = await MicVAD.new({ ...options(name, path), startOnLoad: false });
    detector.frameProcessor.resume();
    for (const frame of frames) await detector.processFrame(frame);
  }
  return told;
}"""


def bundle() -> None:
    """Builds vad.ours.js and vad.theirs.js, which set vad_ours and vad_theirs; they differ by a bundler's alias."""
    for name, more in {"ours": ["--alias:onnxruntime-web=pyruntime"], "theirs": []}.items():
        entry = "node_modules/@ricky0123/vad-web/dist/index.js"
        command = ["node_modules/.bin/esbuild", entry, "--bundle", "--log-level=error", f"--global-name=vad_{name}"]
        subprocess.run([*command, f"--outfile={BUNDLES / f'vad.{name}.js'}", *more], cwd=ROOT, check=True)


def record(sound: np.ndarray) -> Path:
    """Writes a sound (float32 samples in [-1, 1], 16 kHz) to /built/speech.wav."""
    path: Path = BUNDLES / "speech.wav"
    with zoo.replacing(path) as part, wave.open(str(part), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())
    return path


def microphone(sound: Path) -> list[str]:
    """Arguments of Chromium that replace the microphone by a recording."""
    return [f"--use-file-for-fake-audio-capture={sound}", "--autoplay-policy=no-user-gesture-required"]
