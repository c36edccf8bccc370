"""The encoder of x86-64 instructions: its bytes, and what they do."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest

from pyruntime.providers.wasm.native import pages
from pyruntime.providers.wasm.native.x86 import GENERAL, XMM, YMM, ZMM, Assembler, Memory

from .native import needs_code, system_v

RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8, R9, R10, R11, R12, R13, R14, R15 = GENERAL

# Bytes by `llvm-mc --show-encoding -triple=x86_64` (LLVM 14), or by disassembling them where two forms exist
Write = Callable[[Assembler], object]
ENCODINGS: list[tuple[str, str, Write]] = [
    ("mov (%rdi), %rax", "488b07", lambda c: c.op("mov", RAX, Memory(RDI))),
    ("mov 8(%r12), %r9", "4d8b4c2408", lambda c: c.op("mov", R9, Memory(R12, 8))),
    ("mov 1024(%rsp), %ebx", "8b9c2400040000", lambda c: c.op("mov", RBX, Memory(RSP, 1024), False)),
    ("mov %r10, %rdx", "498bd2", lambda c: c.op("mov", RDX, R10)),
    ("mov %rax, 16(%rdx)", "48894210", lambda c: c.op("store", RAX, Memory(RDX, 16))),
    ("mov %r8d, (%r13)", "45894500", lambda c: c.op("store", R8, Memory(R13), False)),
    ("lea (%r8,%r9,4), %r11", "4f8d1c88", lambda c: c.op("lea", R11, Memory(R8, 0, R9, 4))),
    ("lea -4(%rbp,%r12,8), %rax", "4a8d44e5fc", lambda c: c.op("lea", RAX, Memory(RBP, -4, R12, 8))),
    ("add %r15, %r14", "4d03f7", lambda c: c.op("add", R14, R15)),
    ("or 32(%rdx), %eax", "0b4220", lambda c: c.op("or", RAX, Memory(RDX, 32), False)),
    ("and %rcx, %rax", "4823c1", lambda c: c.op("and", RAX, RCX)),
    ("sub (%rsi,%rdi), %rax", "482b043e", lambda c: c.op("sub", RAX, Memory(RSI, 0, RDI))),
    ("cmp 8(%rdi), %rax", "483b4708", lambda c: c.op("cmp", RAX, Memory(RDI, 8))),
    ("imul 48(%rdx), %rcx", "480faf4a30", lambda c: c.op("imul", RCX, Memory(RDX, 48))),
    ("imul %r9, %r10", "4d0fafd1", lambda c: c.op("imul", R10, R9)),
    ("xchg %eax, (%rdi)", "8707", lambda c: c.op("xchg", RAX, Memory(RDI), False)),
    ("cmova %rcx, %rax", "480f47c1", lambda c: c.op("cmova", RAX, RCX)),
    ("cmovle %ecx, %eax", "0f4ec1", lambda c: c.op("cmovle", RAX, RCX, False)),
    ("add $16, %r8", "4983c010", lambda c: c.constant("add", R8, 16)),
    ("add $-129, %rsi", "4881c67fffffff", lambda c: c.constant("add", RSI, -129)),
    ("sub $4, %r13", "4983ed04", lambda c: c.constant("sub", R13, 4)),
    ("or $1, %eax", "83c801", lambda c: c.constant("or", RAX, 1, False)),
    ("and $31, %ecx", "83e11f", lambda c: c.constant("and", RCX, 31, False)),
    ("cmpl $0, 8(%rdi)", "837f0800", lambda c: c.constant("cmp", Memory(RDI, 8), 0, False)),
    ("cmpq $4096, %rcx", "4881f900100000", lambda c: c.constant("cmp", RCX, 4096)),
    ("movq $-1, %rax", "48c7c0ffffffff", lambda c: c.constant("mov", RAX, -1)),
    ("movl $7, (%r12,%r13,2)", "43c7046c07000000", lambda c: c.constant("mov", Memory(R12, 0, R13, 2), 7, False)),
    ("testl $2, 144(%rdx)", "f7829000000002000000", lambda c: c.test(Memory(RDX, 144), 2)),
    ("shl $4, %r9", "49c1e104", lambda c: c.shift("shl", R9, 4)),
    ("shr $16, %eax", "c1e810", lambda c: c.shift("shr", RAX, 16, False)),
    ("push %rbx", "53", lambda c: c.push(RBX)),
    ("push %r12", "4154", lambda c: c.push(R12)),
    ("pop %rbp", "5d", lambda c: c.pop(RBP)),
    ("pop %r15", "415f", lambda c: c.pop(R15)),
    ("ret", "c3", lambda c: c.ret()),
    ("cpuid", "0fa2", lambda c: c.cpuid()),
    ("xgetbv", "0f01d0", lambda c: c.xgetbv()),
    ("bzhi %ecx, %eax, %edi", "c4e270f5f8", lambda c: c.bzhi(RDI, RAX, RCX)),
    ("bzhi %r9d, %r10d, %r11d", "c44230f5da", lambda c: c.bzhi(R11, R10, R9)),
    ("vmovups (%rsi), %ymm0", "c5fc1006", lambda c: c.vector("vmovups", YMM[0], Memory(RSI))),
    ("vmovups 32(%r12), %ymm9", "c4417c104c2420", lambda c: c.vector("vmovups", YMM[9], Memory(R12, 32))),
    ("vmovups 64(%rax), %zmm3", "62f17c48105801", lambda c: c.vector("vmovups", ZMM[3], Memory(RAX, 64))),
    (
        "vmovups (%rax,%r9,4), %zmm31 {%k2} {z}",
        "62217cca103c88",
        lambda c: c.vector("vmovups", ZMM[31].masked(2), Memory(RAX, 0, R9, 4)),
    ),
    ("vmovups 8192(%rax), %zmm3", "62f17c48109800200000", lambda c: c.vector("vmovups", ZMM[3], Memory(RAX, 8192))),
    ("vmovups 8(%rax), %zmm3", "62f17c48109808000000", lambda c: c.vector("vmovups", ZMM[3], Memory(RAX, 8))),
    ("vmovups %ymm12, 32(%r14)", "c4417c116620", lambda c: c.vector("store", YMM[12], Memory(R14, 32))),
    ("vmovups %xmm6, (%rsp)", "c5f8113424", lambda c: c.vector("store", XMM[6], Memory(RSP))),
    (
        "vmovups %zmm20, 64(%r14) {%k1}",
        "62c17c49116601",
        lambda c: c.vector("store", ZMM[20].masked(1), Memory(R14, 64)),
    ),
    ("vaddps %ymm2, %ymm1, %ymm3", "c5f458da", lambda c: c.vector("vaddps", YMM[3], YMM[1], YMM[2])),
    (
        "vaddps (%r14,%r15,2), %ymm1, %ymm11",
        "c40174581c7e",
        lambda c: c.vector("vaddps", YMM[11], YMM[1], Memory(R14, 0, R15, 2)),
    ),
    (
        "vaddps 64(%r14), %zmm25, %zmm25 {%k2} {z}",
        "624134c2584e01",
        lambda c: c.vector("vaddps", ZMM[25].masked(2), ZMM[25], Memory(R14, 64)),
    ),
    ("vminps %zmm17, %zmm1, %zmm17", "62a174485dc9", lambda c: c.vector("vminps", ZMM[17], ZMM[1], ZMM[17])),
    ("vmaxps %ymm5, %ymm0, %ymm5", "c5fc5fed", lambda c: c.vector("vmaxps", YMM[5], YMM[0], YMM[5])),
    ("vxorps %ymm4, %ymm4, %ymm4", "c5dc57e4", lambda c: c.vector("vxorps", YMM[4], YMM[4], YMM[4])),
    ("vpxord %zmm24, %zmm24, %zmm24", "62013d40efc0", lambda c: c.vector("vpxord", ZMM[24], ZMM[24], ZMM[24])),
    ("vpaddd %zmm31, %zmm25, %zmm25", "62013540fecf", lambda c: c.vector("vpaddd", ZMM[25], ZMM[25], ZMM[31])),
    ("vsubps (%r11), %ymm2, %ymm1", "c4c16c5c0b", lambda c: c.vector("vsubps", YMM[1], YMM[2], Memory(R11))),
    ("vdivps %ymm9, %ymm2, %ymm1", "c4c16c5ec9", lambda c: c.vector("vdivps", YMM[1], YMM[2], YMM[9])),
    ("vsqrtps 32(%rsp), %ymm7", "c5fc517c2420", lambda c: c.vector("vsqrtps", YMM[7], Memory(RSP, 32))),
    (
        "vcmpps $17, 64(%r11), %ymm14, %ymm3",
        "c4c10cc25b4011",
        lambda c: c.vector("vcmpps", YMM[3], YMM[14], Memory(R11, 64), number=17),
    ),
    ("vroundps $8, %ymm4, %ymm12", "c4637d08e408", lambda c: c.vector("vroundps", YMM[12], YMM[4], number=8)),
    (
        "vblendvps %ymm5, %ymm4, %ymm3, %ymm2",
        "c4e3654ad450",
        lambda c: c.vector("vblendvps", YMM[2], YMM[3], YMM[4], number=5 << 4),
    ),
    ("vpsubd %ymm3, %ymm2, %ymm1", "c5edfacb", lambda c: c.vector("vpsubd", YMM[1], YMM[2], YMM[3])),
    ("vpmulld %ymm3, %ymm2, %ymm1", "c4e26d40cb", lambda c: c.vector("vpmulld", YMM[1], YMM[2], YMM[3])),
    ("vpminsd %ymm3, %ymm2, %ymm1", "c4e26d39cb", lambda c: c.vector("vpminsd", YMM[1], YMM[2], YMM[3])),
    ("vpmaxsd %ymm3, %ymm2, %ymm1", "c4e26d3dcb", lambda c: c.vector("vpmaxsd", YMM[1], YMM[2], YMM[3])),
    ("vpcmpeqd %ymm3, %ymm2, %ymm1", "c5ed76cb", lambda c: c.vector("vpcmpeqd", YMM[1], YMM[2], YMM[3])),
    ("vpor %ymm3, %ymm2, %ymm1", "c5edebcb", lambda c: c.vector("vpor", YMM[1], YMM[2], YMM[3])),
    ("vpxor %ymm3, %ymm2, %ymm1", "c5edefcb", lambda c: c.vector("vpxor", YMM[1], YMM[2], YMM[3])),
    ("vcvttps2dq %ymm2, %ymm1", "c5fe5bca", lambda c: c.vector("vcvttps2dq", YMM[1], YMM[2])),
    ("vpackusdw %xmm3, %xmm2, %xmm1", "c4e2692bcb", lambda c: c.vector("vpackusdw", XMM[1], XMM[2], XMM[3])),
    ("vpackuswb %xmm3, %xmm2, %xmm1", "c5e967cb", lambda c: c.vector("vpackuswb", XMM[1], XMM[2], XMM[3])),
    ("vextracti128 $1, %ymm3, %xmm10", "c4c37d39da01", lambda c: c.vector("vextracti128", YMM[3], XMM[10], number=1)),
    ("vmovq %xmm3, (%r9,%rax)", "c4c179d61c01", lambda c: c.vector("store half", XMM[3], Memory(R9, 0, RAX))),
    ("vpmovsxbd (%rsi,%rax), %ymm1", "c4e27d210c06", lambda c: c.vector("vpmovsxbd", YMM[1], Memory(RSI, 0, RAX))),
    ("vpmovzxbd (%rsi,%rax), %ymm1", "c4e27d310c06", lambda c: c.vector("vpmovzxbd", YMM[1], Memory(RSI, 0, RAX))),
    ("vpmovsxwd (%r8,%rax,2), %ymm1", "c4c27d230c40", lambda c: c.vector("vpmovsxwd", YMM[1], Memory(R8, 0, RAX, 2))),
    ("vpmovzxwd (%r8,%rax,2), %ymm1", "c4c27d330c40", lambda c: c.vector("vpmovzxwd", YMM[1], Memory(R8, 0, RAX, 2))),
    ("vpsrld $4, %ymm2, %ymm1", "c5f572d204", lambda c: c.shift_lanes("vpsrld", YMM[1], YMM[2], 4)),
    ("vpmovzxbw 16(%rsi), %ymm0", "c4e27d304610", lambda c: c.vector("vpmovzxbw", YMM[0], Memory(RSI, 16))),
    ("vpmovsxbw (%r9), %ymm1", "c4c27d2009", lambda c: c.vector("vpmovsxbw", YMM[1], Memory(R9))),
    ("vpand %ymm4, %ymm0, %ymm0", "c5fddbc4", lambda c: c.vector("vpand", YMM[0], YMM[0], YMM[4])),
    ("vmulps (%r11), %ymm2, %ymm2", "c4c16c5913", lambda c: c.vector("vmulps", YMM[2], YMM[2], Memory(R11))),
    ("vcvtdq2ps %ymm3, %ymm3", "c5fc5bdb", lambda c: c.vector("vcvtdq2ps", YMM[3], YMM[3])),
    ("vpsrlw $4, %ymm0, %ymm1", "c5f571d004", lambda c: c.shift_lanes("vpsrlw", YMM[1], YMM[0], 4)),
    ("vpsrlw $4, %ymm9, %ymm12", "c4c11d71d104", lambda c: c.shift_lanes("vpsrlw", YMM[12], YMM[9], 4)),
    ("vpsrlw $4, %zmm9, %zmm12", "62d11d4871d104", lambda c: c.shift_lanes("vpsrlw", ZMM[12], ZMM[9], 4)),
    ("vpandd %zmm4, %zmm0, %zmm0", "62f17d48dbc4", lambda c: c.vector("vpand", ZMM[0], ZMM[0], ZMM[4])),
    ("vpmovzxbw %ymm0, %zmm0", "62f27d4830c0", lambda c: c.vector("vpmovzxbw", ZMM[0], YMM[0])),
    (
        "vinserti128 $1, 32(%rsi,%r14), %ymm1, %ymm1",
        "c4a375384c362001",
        lambda c: c.vector("vinserti128", YMM[1], YMM[1], Memory(RSI, 32, R14), number=1),
    ),
    ("vpsrad $16, %ymm0, %ymm2", "c5ed72e010", lambda c: c.shift_lanes("vpsrad", YMM[2], YMM[0], 16)),
    ("vpslld $16, %ymm9, %ymm12", "c4c11d72f110", lambda c: c.shift_lanes("vpslld", YMM[12], YMM[9], 16)),
    ("vpmaddwd %ymm14, %ymm1, %ymm15", "c44175f5fe", lambda c: c.vector("vpmaddwd", YMM[15], YMM[1], YMM[14])),
    ("vpdpbusd %zmm30, %zmm1, %zmm25", "6202754850ce", lambda c: c.vector("vpdpbusd", ZMM[25], ZMM[1], ZMM[30])),
    ("vpdpbusd %zmm0, %zmm30, %zmm7", "62f20d4050f8", lambda c: c.vector("vpdpbusd", ZMM[7], ZMM[30], ZMM[0])),
    ("vpdpwssd %zmm30, %zmm1, %zmm12", "6212754852e6", lambda c: c.vector("vpdpwssd", ZMM[12], ZMM[1], ZMM[30])),
    (
        "vbroadcastss 240(%rdx), %ymm14",
        "c4627d18b2f0000000",
        lambda c: c.vector("vbroadcastss", YMM[14], Memory(RDX, 240)),
    ),
    ("vbroadcastss 240(%rdx), %zmm1", "62f27d48184a3c", lambda c: c.vector("vbroadcastss", ZMM[1], Memory(RDX, 240))),
    ("vbroadcastss (%r8,%r9), %ymm14", "c4027d183408", lambda c: c.vector("vbroadcastss", YMM[14], Memory(R8, 0, R9))),
    ("vfmadd231ps %ymm0, %ymm14, %ymm2", "c4e20db8d0", lambda c: c.vector("vfmadd231ps", YMM[2], YMM[14], YMM[0])),
    (
        "vfmadd231ps 12(%r8,%r9,2){1to16}, %zmm0, %zmm18",
        "62827d58b8544803",
        lambda c: c.vector("vfmadd231ps", ZMM[18], ZMM[0], Memory(R8, 12, R9, 2, True)),
    ),
    (
        "vfmadd231ps %zmm31, %zmm30, %zmm29",
        "62020d40b8ef",
        lambda c: c.vector("vfmadd231ps", ZMM[29], ZMM[30], ZMM[31]),
    ),
    ("vmaskmovps (%r14), %ymm1, %ymm0", "c4c2752c06", lambda c: c.vector("vmaskmovps", YMM[0], YMM[1], Memory(R14))),
    (
        "vmaskmovps %ymm13, %ymm1, 32(%r14)",
        "c442752e6e20",
        lambda c: c.vector("mask store", YMM[13], YMM[1], Memory(R14, 32)),
    ),
    (
        "vinsertf64x4 $1, 96(%rcx), %zmm0, %zmm0",
        "62f3fd481a410301",
        lambda c: c.vector("vinsertf64x4", ZMM[0], ZMM[0], Memory(RCX, 96), number=1),
    ),
    ("prefetchw 128(%rax)", "0f0d8880000000", lambda c: c.prefetch_to_write(Memory(RAX, 128))),
    ("prefetchw (%r14)", "410f0d0e", lambda c: c.prefetch_to_write(Memory(R14))),
    ("vpaddd %ymm9, %ymm4, %ymm4", "c4c15dfee1", lambda c: c.vector("vpaddd", YMM[4], YMM[4], YMM[9])),
    (
        "vpaddd 64(%rax), %zmm6, %zmm7",
        "62f14d48fe7801",
        lambda c: c.vector("vpaddd", ZMM[7], ZMM[6], Memory(RAX, 64)),
    ),
    ("vpcmpgtd (%rax), %ymm15, %ymm15", "c5056638", lambda c: c.vector("vpcmpgtd", YMM[15], YMM[15], Memory(RAX))),
    ("vpcmpgtd %zmm4, %zmm8, %k1", "62f13d4866cc", lambda c: c.vector("vpcmpgtd", ZMM[1], ZMM[8], ZMM[4])),
    (
        "vshufps $136, %ymm2, %ymm1, %ymm1",
        "c5f4c6ca88",
        lambda c: c.vector("vshufps", YMM[1], YMM[1], YMM[2], number=0x88),
    ),
    ("vpermpd $216, %ymm1, %ymm1", "c4e3fd01c9d8", lambda c: c.vector("vpermpd", YMM[1], YMM[1], number=0xD8)),
    ("vpermt2ps %zmm2, %zmm11, %zmm1", "62f225487fca", lambda c: c.vector("vpermt2ps", ZMM[1], ZMM[11], ZMM[2])),
    ("kmovw %eax, %k1", "c5f892c8", lambda c: c.mask(1, RAX)),
    ("vzeroupper", "c5f877", lambda c: c.vzeroupper()),
]


@pytest.mark.parametrize(("text", "code", "write"), ENCODINGS, ids=[text for text, _, _ in ENCODINGS])
def test_encodings(text: str, code: str, write: Write) -> None:
    made = Assembler()
    write(made)
    assert made.to_bytes().hex() == code, text


def test_jumps_and_addresses_of_code() -> None:
    code = Assembler()
    ahead, end = code.label(), code.label()
    again = code.here()
    code.jump(ahead, "le")
    code.call(end)
    code.place(ahead)
    code.jump(again)
    code.address(RCX, end)
    code.place(end)
    assert code.to_bytes().hex() == "0f8e05000000e80c000000e9f0ffffff488d0d00000000"


def call(code: Assembler, *arguments: int) -> int:
    """Run code as a function of the calling convention of this system: System V's registers rdi, rsi, rdx."""
    kind = ctypes.CFUNCTYPE(ctypes.c_uint64, *[ctypes.c_uint64] * len(arguments))
    return int(kind(pages.executable(code.to_bytes()))(*arguments))


@needs_code
@system_v
def test_integer_instructions_run() -> None:
    """f(x, y) = min((3 x + 8 y - 5) & -2, 1000), with its operands in memory, by way of every integer instruction."""
    code = Assembler()
    words = (ctypes.c_uint64 * 4)()
    code.push(RBX)
    code.op("mov", RBX, RDX)
    code.op("store", RDI, Memory(RBX, 8))
    code.op("lea", RAX, Memory(RDI, 0, RDI, 2))
    code.shift("shl", RSI, 4)
    code.shift("shr", RSI, 1)
    code.op("add", RAX, RSI)
    code.constant("sub", RAX, 5)
    code.constant("and", RAX, -2)
    code.constant("mov", RCX, 1000)
    code.op("cmp", RAX, RCX)
    code.op("cmova", RAX, RCX)
    code.constant("mov", Memory(RBX, 16), -7)
    code.op("mov", RCX, RAX)
    code.op("xchg", RCX, Memory(RBX, 24))
    code.test(Memory(RBX, 8), 1)
    even = code.label()
    code.jump(even, "e")
    code.constant("add", Memory(RBX, 16), 1)
    code.place(even)
    code.pop(RBX)
    code.ret()
    for x, y in ((1, 2), (4, 100), (77, 0), (2, 200)):
        words[3] = 9
        want = min((3 * x + 8 * y - 5) & -2, 1000)
        assert call(code, x, y, ctypes.addressof(words)) == want
        assert list(words[1:]) == [x, 2**64 - 7 + x % 2, want]


@needs_code
@system_v
@pytest.mark.parametrize("bits", [0, 1, 5, 31, 32])
def test_low_bits(bits: int) -> None:
    code = Assembler()
    code.op("mov", RCX, RSI)
    code.bzhi(RAX, RDI, RCX)
    code.ret()
    assert call(code, 0xDEADBEEF, bits) == 0xDEADBEEF & (1 << bits) - 1
