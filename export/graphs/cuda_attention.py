"""Attention for NVIDIA GPUs: the operators whose CUDA kernels take lengths of rows instead of masks.

Self-attention of the decoder is GroupQueryAttention as on the CPU: one new token, 16-bit numbers and a shared buffer
reach its fastest kernel. Elsewhere it is MultiHeadAttention, which reads lengths as a one-dimensional padding mask.
"""

from torch import Tensor
from torch.onnx.ops import symbolic

from export.graphs.contrib_attention import ContribAttention


class CudaAttention(ContribAttention):
    """The target's attention is inherited; the source's is another operator."""

    def attend_in_source(self, qkv: Tensor, lengths: Tensor) -> Tensor:
        """Splits the packed projections: the operator wants them apart where it is given lengths."""
        query, key, value = qkv.chunk(3, dim=-1)
        return self._attend(query, key, value, lengths)

    def attend_to_source(self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[()]]:
        """Reads the caches as they are, with the heads on an axis of their own."""
        return self._attend(query, key, value, lengths), ()

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> Tensor:
        output: Tensor = symbolic(
            "com.microsoft::MultiHeadAttention",
            [query, key, value, None, lengths],
            {"num_heads": self.heads},
            dtype=query.dtype,
            shape=query.shape,
            version=1,
        )
        return output
