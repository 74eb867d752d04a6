// Products in 8 bits by AMX. 16 groups of a block of weights, 16 outputs by 4 inputs each, are a tile as they lie.
#pragma once

#include "kernels/product_pairs.hpp"

namespace dragoman {
namespace {

#if defined(__AMX_INT8__)

constexpr Index kMinRows = 3;  // fewer are faster without tiles
constexpr Index kTileRows = 16;

// Products of R tiles of rows, the second of which begins at the row `second`, with B blocks.
template <int R, int B>
INLINE void compute_amx(const Int8Operands& in, Index second, std::int32_t (*sums)[kTileRows * kLanes]) {
  // Kept in registers, since a load of a tile might read what was stored before.
  const std::uint8_t* x = in.x;
  const std::int8_t* w = in.w;
  const Index groups = in.groups, stride = in.stride;
  each<R * B>([&](auto i) INLINE_LAMBDA { load_tile<i>(in.offset + 16 * (i % B), 0); });
  for (Index g = 0; g < groups; g += 16, x += 64, w += 1024) {
    each<R>([&](auto r) INLINE_LAMBDA { load_tile<4 + r>(x + r * second * stride, stride); });
    each<B>([&](auto b) INLINE_LAMBDA {
      constexpr int kWeights = 4 + R + b % (4 - R);
      load_tile<kWeights>(w + b * groups * 64, 64);
      each<R>([&](auto r) INLINE_LAMBDA { dot_tiles<r * B + b, 4 + r, kWeights>(); });
    });
  }
  each<R * B>([&](auto i) INLINE_LAMBDA { save_tile<i>(sums[i]); });
}

// R tiles of rows times B blocks. The second tile ends with the last row; rows that both tiles have are stored once.
template <int R, int B>
void amx_tile(const Int8Operands& in, const TileOutput& out, Index rows, Index tile_rows) {
  alignas(64) std::int32_t sums[R * B][kTileRows * kLanes];
  const Index second = rows - tile_rows;
  compute_amx<R, B>(in, second, sums);
  F32 scale[B], bias[B];
  each<B>([&](auto b) INLINE_LAMBDA {
    scale[b] = load(in.scale + 16 * b);
    bias[b] = load(in.bias + 16 * b);
  });
  const F32 floor = broadcast(out.floor);
  const float* row_scales = in.row_scales;
  TileOutput to = out;
  const auto store_all = [&](auto after) INLINE_LAMBDA {
    for (Index r = 0; r < rows; ++r, to.y += to.stride, to.residual += to.residual_stride) {
      const std::int32_t* of_row = r < tile_rows ? sums[0] + kLanes * r : sums[(R - 1) * B] + kLanes * (r - second);
      const F32 row_scale = broadcast(row_scales[r]);
      each<B>([&](auto b) INLINE_LAMBDA {
        const I32 sum = load(of_row + b * kTileRows * kLanes);
        store(to.y + 16 * b, after(max(floor, fma(to_float(sum), row_scale * scale[b], bias[b])), Index{16 * b}));
      });
    }
  };
  if (out.residual == nullptr) return store_all([](F32 y, Index) INLINE_LAMBDA { return y; });
  store_all([&](F32 y, Index column) INLINE_LAMBDA { return y + load(to.residual + column); });
}

void multiply_amx(const Int8Matrix& w, Int8Rows x, Index rows, BlockRange range, const Epilogue& epilogue,
                  OutputRows y) {
  if (rows < kMinRows || w.inputs % 64 != 0) return multiply_int8(w, x, rows, range, epilogue, y);
  const Index most = highest_tile(rows, 2 * kTileRows);
  const bool two = most > kTileRows;
  const Index tile_rows = two ? (most + 1) / 2 : most;
  TileShapes shapes;
  for (int tile = 0; tile < (two ? 6 : 5); ++tile) shapes.rows[tile] = static_cast<std::uint8_t>(tile_rows);
  configure_tiles(shapes);
  multiply(2 * kTileRows, two ? 2 : 4, rows, range, epilogue, y,
           [&](Index row, Index count, Index block, Index blocks, Index later, const TileOutput& out) INLINE_LAMBDA {
             const auto tile = two ? (blocks > 1 ? amx_tile<2, 2> : amx_tile<2, 1>)
                                   : (blocks > 1 ? amx_tile<1, 4> : amx_tile<1, 1>);
             tile(operands(w, x, row, block, later), out, count, tile_rows);
           });
  release_tiles();
}
constexpr auto kMultiplyInt8 = multiply_amx;

#else

constexpr auto kMultiplyInt8 = multiply_int8;

#endif

}  // namespace
}  // namespace dragoman
