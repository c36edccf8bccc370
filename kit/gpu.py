"""The GPU for tests and benchmarks that name both providers: on most of their machines it is a software adapter."""

GPU = ("webgpu", {"allow_software": True})
GPU_IN_PAGES = {"name": "webgpu", "allowSoftware": True}
