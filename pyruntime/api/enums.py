"""onnxruntime's enumerations. docs/compatibility.md says which members have an effect."""

from __future__ import annotations

from enum import Enum, IntEnum, IntFlag, StrEnum


class GraphOptimizationLevel(StrEnum):
    """For `SessionOptions.graph_optimization_level`; each equals the text that the option takes."""

    ORT_DISABLE_ALL = "disabled"
    ORT_ENABLE_BASIC = "basic"
    ORT_ENABLE_EXTENDED = "extended"
    ORT_ENABLE_LAYOUT = "layout"
    ORT_ENABLE_ALL = "all"

    @classmethod
    def _missing_(cls, value: object) -> GraphOptimizationLevel | None:
        """The level with onnxruntime's number."""
        numbers = dict(zip((0, 1, 2, 3, 99), cls, strict=True))
        return numbers.get(value) if isinstance(value, int) else None


class ExecutionMode(Enum):
    """For `SessionOptions.execution_mode`, without effect: kernels run one after the other, each on all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(Enum):
    """For `SessionOptions.execution_order`, without effect: nodes run in the order of the file."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class OrtAllocatorType(Enum):
    """For `OrtMemoryInfo`."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(Enum):
    """For `OrtMemoryInfo`."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1  # noqa: PIE796  an alias, as in onnxruntime
    DEFAULT = 0


class OrtMemoryInfoDeviceType(Enum):
    """For `OrtMemoryInfo.device_type`."""

    CPU = 0
    GPU = 1
    FPGA = 2
    NPU = 3


class OrtDeviceMemoryType(Enum):
    """For `OrtMemoryInfo.device_mem_type`."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtHardwareDeviceType(Enum):
    """For `OrtHardwareDevice.type`."""

    CPU = 0
    GPU = 1
    NPU = 2


class OrtExecutionProviderDevicePolicy(Enum):
    """For `SessionOptions.set_provider_selection_policy`."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6


class OrtSparseFormat(Enum):
    """Formats of sparse tensors: those that Python makes are COO and CSRC."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


class OrtCompileApiFlags(IntFlag):
    """Flags of `ModelCompiler`, which is refused."""

    NONE = 0
    ERROR_IF_NO_NODES_COMPILED = 1
    ERROR_IF_OUTPUT_FILE_EXISTS = 2


class OrtDeviceVendorId(IntEnum):
    """PCI vendor IDs."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086
