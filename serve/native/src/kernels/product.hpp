// Products of rows with a matrix: tiles of some rows times some blocks of 16 outputs stay in registers.
#pragma once

#include "kernels/math.hpp"

namespace dragoman {
namespace {

// R rows together: one row alone would wait for its scale.
template <int R>
INLINE void quantize_rows(FloatRows x, Index inputs, Int8Rows out) {
  const I32 zero = broadcast(std::int32_t{kInputOffset});
  Scaling s[R];
  each<R>([&](auto r) INLINE_LAMBDA {
    s[r] = scaling(max_bits(x.data + r * x.stride, inputs), 127.0f);
    out.scales[r] = s[r].scale;
  });
  each<R>([&](auto r) INLINE_LAMBDA {
    const F32 factor = broadcast(s[r].factor);
    for_lanes(inputs, [&](Index i, Index n) INLINE_LAMBDA {
      store_bytes(out.data + r * out.stride + i, round_to_byte(load_some(x.data + r * x.stride + i, n) * factor) + zero);
    });
  });
}

void quantize_bytes(FloatRows x, Index rows, Index inputs, Int8Rows out) {
  with_rows(rows, [&](Index first, auto together) INLINE_LAMBDA {
    quantize_rows<together>({x.data + first * x.stride, x.stride}, inputs,
                            {out.data + first * out.stride, out.scales + first, out.stride});
  });
}

// Where a tile of R rows and B blocks leaves its outputs: y = max(floor, product) + residual, if there is a residual.
struct TileOutput {
  float* y;
  Index stride;
  const float* residual;
  Index residual_stride;
  float floor;
};

template <int R, int B, class F>
INLINE void store_tile(const TileOutput& out, F product) {
  const F32 floor = broadcast(out.floor);
  const auto store_all = [&](auto after) INLINE_LAMBDA {
    each<R * B>([&](auto i) INLINE_LAMBDA {
      constexpr int kRow = i % R, kBlock = i / R;
      const F32 y = max(floor, product(Constant<kRow>{}, Constant<kBlock>{}));
      store(out.y + kRow * out.stride + 16 * kBlock, after(y, kRow, 16 * kBlock));
    });
  };
  if (out.residual == nullptr) return store_all([](F32 y, Index, Index) INLINE_LAMBDA { return y; });
  store_all([&](F32 y, Index row, Index column) INLINE_LAMBDA {
    return y + load(out.residual + row * out.residual_stride + column);
  });
}

// Whether a tile fetches weights of later tiles into the second-level cache: it computes longer than that takes. Fewer rows
// wait for their own weights.
constexpr bool fetches(int rows, int most) { return rows > 3 && rows + 1 >= most; }

// Rows of bytes from a tile's first row on, and a matrix from its first block on.
struct Int8Operands {
  const std::uint8_t* x;
  Index stride;
  const float* row_scales;
  const std::int8_t* w;
  Index groups;  // of four inputs
  const float* scale;
  const std::int32_t* offset;
  const float* bias;
  const std::int8_t* later;  // a block to fetch
};

// Turns sums into outputs: total(r, b) are those of a row and a block.
template <int R, int B, class F>
INLINE void store_products(const Int8Operands& in, const TileOutput& out, F total) {
  // Kept in registers, since a store might change memory that is read again.
  F32 scale[B], bias[B];
  each<B>([&](auto b) INLINE_LAMBDA {
    scale[b] = load(in.scale + 16 * b);
    bias[b] = load(in.bias + 16 * b);
  });
  store_tile<R, B>(out, [&](auto r, auto b) INLINE_LAMBDA {
    return fma(to_float(total(r, b)), broadcast(in.row_scales[r]) * scale[b], bias[b]);
  });
}

template <int R, int B>
void compute_tile(const Int8Operands& in, const TileOutput& out);

#if !defined(DRAGOMAN_PAIRS)  // see product_pairs.hpp

constexpr auto quantize = quantize_bytes;
Index int8_stride(Index inputs) { return round_up(inputs, 64); }

template <int R, int B>
void compute_tile(const Int8Operands& in, const TileOutput& out) {
  // More sums in flight for one row, if there are registers; integer sums may be split.
  constexpr int kSplit = R == 1 && kRegisters == 1 ? 2 : 1;
  I32 sum[kSplit * R * B];
  each<R * B>([&](auto i) INLINE_LAMBDA {
    sum[i] = first_sum(in.offset + 16 * (i % B));
    if constexpr (kSplit == 2) sum[R * B + i] = broadcast(std::int32_t{0});
  });
  const std::uint8_t* x = in.x;
  const std::int8_t *w = in.w, *later = in.later;
  const Index stride = in.stride, block = in.groups * 64;
  const auto step = [&](auto half) INLINE_LAMBDA {
    Bytes weights[B];
    each<B>([&](auto b) INLINE_LAMBDA { weights[b] = load_bytes(w + b * block); });
    each<R>([&](auto r) INLINE_LAMBDA {
      const Quad four = load_quad(x + r * stride);
      each<B>([&](auto b) INLINE_LAMBDA {
        sum[half * R * B + r * B + b] = dot_weights(sum[half * R * B + r * B + b], four, weights[b]);
      });
    });
    if constexpr (fetches(R, kInt8TileRows)) __builtin_prefetch(later, 0, 2), later += 64;
    w += 64;
    x += 4;
  };
  Index g = 0;
  for (; g + kSplit <= in.groups; g += kSplit) each<kSplit>(step);
  if (g < in.groups) step(Constant<0>{});
  store_products<R, B>(in, out, [&](auto r, auto b) INLINE_LAMBDA {
    if constexpr (kSplit == 2) return sum[r * B + b] + sum[R * B + b];
    return sum[r * B + b];
  });
}

#endif

struct FloatOperands {
  const float* x;
  Index stride;
  const float* w;
  Index inputs;
  const float* bias;
  const float* later;  // a block to fetch
};

// Each output is summed from its bias on in the order of the inputs.
template <int R, int B>
void compute_tile(const FloatOperands& in, const TileOutput& out) {
  F32 sum[R * B];
  each<R * B>([&](auto i) INLINE_LAMBDA { sum[i] = load(in.bias + 16 * (i % B)); });
  const float *x = in.x, *w = in.w, *later = in.later;
  const Index stride = in.stride, block = in.inputs * 16;
  for (Index k = in.inputs; k > 0; --k, w += 16, ++x) {
    F32 weights[B];
    if constexpr (fetches(R, kFloatTileRows)) __builtin_prefetch(later, 0, 2), later += 16;
    each<B>([&](auto b) INLINE_LAMBDA { weights[b] = load(w + b * block); });
    each<R>([&](auto r) INLINE_LAMBDA {
      const F32 input = broadcast(x[r * stride]);
      each<B>([&](auto b) INLINE_LAMBDA { sum[r * B + b] = fma(input, weights[b], sum[r * B + b]); });
    });
  }
  store_tile<R, B>(out, [&](auto r, auto b) INLINE_LAMBDA { return sum[r * B + b]; });
}

// The tiles of 1 to `kRows` rows: of one block, and of as many as `tile_blocks` says.
template <class Operands, int kRows>
struct TileTable {
  void (*of_rows[2][kRows])(const Operands&, const TileOutput&);
};
template <class Operands, int... I>
constexpr TileTable<Operands, sizeof...(I)> tiles(std::integer_sequence<int, I...>) {
  return {{{compute_tile<I + 1, 1>...}, {compute_tile<I + 1, tile_blocks(I + 1)>...}}};
}
constexpr auto kInt8Tiles = tiles<Int8Operands>(std::make_integer_sequence<int, kInt8TileRows>{});
constexpr auto kFloatTiles = tiles<FloatOperands>(std::make_integer_sequence<int, kFloatTileRows>{});

// What a tile does of an epilogue; `finish` does the rest.
INLINE bool in_tile(const Epilogue& e) {
  return e.factor.data == nullptr && (e.activation == Activation::kNone || e.activation == Activation::kRelu);
}

// Applies an epilogue to products that are stored in y.
void finish(const Epilogue& e, OutputRows y, Index first_row, Index rows, Index first_column, Index columns) {
  for (Index r = first_row; r < first_row + rows; ++r)
    for (Index c = first_column; c < first_column + columns; c += kLanes) {
      float* at = y.data + r * y.stride + c;
      F32 v = activate(e.activation, load(at));
      if (e.factor.data != nullptr) v = v * load(e.factor.data + r * e.factor.stride + c);
      if (e.residual.data != nullptr) v = v + load(e.residual.data + r * e.residual.stride + c);
      store(at, v);
    }
}

// Returns the rows of the highest of the fewest tiles that have at most `most` rows and cover all.
INLINE Index highest_tile(Index rows, Index most) {
  const Index parts = (rows + most - 1) / most;
  return parts == 0 ? 0 : (rows + parts - 1) / parts;
}

// Covers all rows and the blocks of a range with the fewest tiles of at most `most` rows, and of `wide` blocks or one.
// Their rows differ by at most 1. tile(row, rows, block, blocks, later, output) computes one; the first tiles of a range of
// blocks fetch those of the next range, `later` each, perhaps beyond the matrix.
template <class F>
INLINE void multiply(Index most, Index wide, Index rows, BlockRange range, const Epilogue& e, OutputRows y, F tile) {
  const bool whole = in_tile(e);
  const float floor = whole && e.activation == Activation::kRelu ? 0.0f : -kInfinity;
  const FloatRows residual = whole ? e.residual : FloatRows{nullptr, 0};
  const Index high = highest_tile(rows, most), parts = (rows + most - 1) / most, higher = rows - parts * (high - 1);
  for (Index block = range.first; block < range.last;) {
    const Index blocks = range.last - block >= wide ? wide : 1;
    const Index column = (block - range.first) * kLanes;
    for (Index part = 0, row = 0, count = high; part < parts; ++part, row += count) {
      if (part == higher) --count;
      const float* added = residual.data == nullptr ? nullptr : residual.data + row * residual.stride + column;
      const TileOutput out{y.data + row * y.stride + column, y.stride, added, residual.stride, floor};
      tile(row, count, block, blocks, part < blocks ? block + blocks + part : block, out);
      if (!whole) finish(e, y, row, count, column, blocks * kLanes);
    }
    block += blocks;
  }
}

// The same with the tiles of a table; operands(row, block, later) returns those of the tile that begins there.
template <class Operands, int kRows, class F>
INLINE void multiply_by(const TileTable<Operands, kRows>& table, Index rows, BlockRange range, const Epilogue& e,
                        OutputRows y, F operands) {
  multiply(kRows, tile_blocks(rows), rows, range, e, y,
           [&](Index row, Index count, Index block, Index blocks, Index later, const TileOutput& out) INLINE_LAMBDA {
             table.of_rows[blocks > 1][count - 1](operands(row, block, later), out);
           });
}

// The operands of the tile that begins at a row and a block.
INLINE Int8Operands operands(const Int8Matrix& w, Int8Rows x, Index row, Index block, Index later) {
  const Index groups = (w.inputs + 3) / 4, column = block * kLanes;
  return {x.data + row * x.stride, x.stride, x.scales + row, w.weight + block * groups * 64, groups,
          w.scale + column, w.offset + column, w.bias + column, w.weight + later * groups * 64};
}

void multiply_int8(const Int8Matrix& w, Int8Rows x, Index rows, BlockRange range, const Epilogue& epilogue,
                   OutputRows y) {
  multiply_by(kInt8Tiles, rows, range, epilogue, y,
              [&](Index row, Index block, Index later) INLINE_LAMBDA { return operands(w, x, row, block, later); });
}

void multiply_float(const FloatMatrix& w, FloatRows x, Index rows, BlockRange range, const Epilogue& epilogue,
                    OutputRows y) {
  multiply_by(kFloatTiles, rows, range, epilogue, y, [&](Index row, Index block, Index later) INLINE_LAMBDA {
    const Index column = block * kLanes;
    return FloatOperands{x.data + row * x.stride, x.stride, w.weight + column * w.inputs, w.inputs, w.bias + column,
                         w.weight + later * kLanes * w.inputs};
  });
}

}  // namespace
}  // namespace dragoman
