"""PyTorch on the CPU uses our arrays without a copy. A script: Debian's PyTorch comes without pytest."""

from __future__ import annotations

import gc

import torch

import hugeleaf

array = hugeleaf.zeros((4, 1 << 20), "f4")
address = array.ctypes.data
tensor = torch.from_dlpack(array)
assert tensor.data_ptr() == address, "it was copied"
tensor[2, 3] = 7
assert array[2, 3] == 7
assert torch.from_numpy(array).data_ptr() == address
assert hugeleaf.pages(tensor).requested == "1G,2M"
coverage = hugeleaf.pages(array).coverage
assert hugeleaf.pages(tensor).coverage == coverage
del array
gc.collect()
assert float(tensor.sum()) == 7, "the tensor keeps the memory"
memory = hugeleaf.buffer(1 << 22)
assert torch.frombuffer(memory, dtype=torch.uint8).data_ptr() == memory.address
plain = hugeleaf.pages(torch.ones(1 << 22))
assert plain.nbytes == 1 << 24 and plain.requested is None
print(f"torch {torch.__version__}: shares memory, coverage {coverage:.0%}")
