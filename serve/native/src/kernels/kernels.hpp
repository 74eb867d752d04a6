// The kernels of a Transformer as one table of functions for each instruction set.
//
// All instruction sets compute the same bits, and the bits of a row never depend on other rows. Integer products are
// exact, float products add in the order of their inputs, and reductions of 16 lanes have one fixed tree.
// NaN or infinity in a row spoils that row alone, and its log-sum is NaN. NaN has no fixed payload.
//
// Letters: N outputs and K inputs of a matrix, Np = N rounded up to 16, Kp = K rounded up to 4, H heads, D head size,
// Dp = D rounded up to 4, V vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace dragoman {

using Index = std::ptrdiff_t;

inline constexpr Index kLanes = 16;   // outputs of a block of weights, and positions of a block of a cache
inline constexpr Index kStrip = 256;  // logits that `choose_strip` takes at a time

constexpr Index round_up(Index count, Index multiple) { return (count + multiple - 1) / multiple * multiple; }

// W of y = x W^T + b in 8 bits: W[o, i] = weight * scale[o].
struct Int8Matrix {
  const std::int8_t* weight;   // [Np / 16, Kp / 4, 16, 4]; -127 to 127
  const float* scale;          // [Np]
  const std::int32_t* offset;  // [Np]: -128 * sum over i of weight; not read by `embed_int8`
  const float* bias;           // [Np]; not read by `embed_int8`
  Index outputs;               // N
  Index inputs;                // K
};

struct FloatMatrix {
  const float* weight;  // [Np / 16, K, 16]
  const float* bias;    // [Np]; not read by `embed_float`
  Index outputs;        // N
  Index inputs;         // K
};

// Rows of 8-bit inputs of a product. The bytes have the form that the instruction set multiplies fastest: only
// `multiply_int8` of the same table reads them.
struct Int8Rows {
  std::uint8_t* data;  // [rows, stride]
  float* scales;       // [rows]
  Index stride;        // at least `Kernels::int8_stride(K)`
};

// Row r begins at data + r * stride.
struct FloatRows {
  const float* data;
  Index stride;
};

struct OutputRows {
  float* data;
  Index stride;
};

enum class Activation { kNone, kRelu, kGelu, kSilu };

// What follows a product: y = activation(y) * factor + residual. A null pointer skips its part.
struct Epilogue {
  Activation activation = Activation::kNone;
  FloatRows factor{nullptr, 0};
  FloatRows residual{nullptr, 0};  // may be the output itself after no activation or ReLU, without a factor
};

// Blocks of 16 outputs that a call computes: first, ..., last - 1. The output, factor and residual of a call point
// at the column of its first block, and their rows have room for whole blocks. Padded outputs are written too.
struct BlockRange {
  Index first;
  Index last;
};

struct Norm {
  enum class Kind { kLayer, kRms };
  Kind kind;
  const float* gain;  // [width]
  const float* bias;  // [width]; null for kRms
  Index width;
  float epsilon;
};

struct Heads {
  Index count;  // H
  Index size;   // D
};

// Keys and values of one slot and layer. Block b holds the positions 16 b, ..., 16 b + 15.
struct Int8Cache {
  std::int8_t* values;  // block: [2, H, 16 * Dp]; keys [Dp / 4, 16, 4], values [4, Dp, 4 positions]
  float* scales;        // block: [2, H, 16]
  Index value_stride;   // bytes from a block to the next
  Index scale_stride;   // floats from a block to the next
};

struct FloatCache {
  float* values;       // block: [2, H, 16 * D]; keys [D, 16], values [16, D]
  Index value_stride;  // floats from a block to the next
};

// One query that attends to the first `length` (at least 1) positions of a cache, in all heads.
struct Attention {
  const float* query;  // [H, D]
  Index length;
  float* output;        // [H, D]
  float* scratch;       // `attention_scratch` floats
  float* weights;       // null, or softmax weights [H, weight_stride]; the first `length` of each head are written
  Index weight_stride;
};

// States of the recurrent units of a layer: that of row r begins at data + slots[r] * stride. A row at position 0 has the
// state zero, whatever is in memory.
struct StateRows {
  float* data;
  Index stride;
  const std::int32_t* slots;
  const std::int32_t* positions;
};

inline constexpr int kHeadsTogether = 4;  // that attention takes at a time

constexpr Index attention_scratch(Heads heads, Index length) {
  return kHeadsTogether * (2 * round_up(length, kLanes) + round_up(heads.size, kLanes));
}

struct Candidate {
  float logit;
  std::int32_t id;
};

// What is known of a row of logits. The memory belongs to the caller.
// Strips may come in any order and from several threads, if each thread has a list of the best of its own.
struct Choice {
  float* largest;   // [strip_count(V) rounded up to 16]
  float* sums;      // the same; sum of exp(logit - largest) of each strip
  Candidate* best;  // [best_count]
  Index best_count;
  Index filled;  // candidates so far; 0 at first
};

constexpr Index strip_count(Index vocabulary) { return (vocabulary + kStrip - 1) / kStrip; }

struct Kernels {
  const char* name;

  // Returns the bytes of a row of K inputs of a product.
  Index (*int8_stride)(Index inputs);
  // x [rows, K] to 8 bits with one scale per row.
  void (*quantize)(FloatRows x, Index rows, Index inputs, Int8Rows out);

  // y = epilogue(x W^T + b) for some blocks of outputs.
  void (*multiply_int8)(const Int8Matrix& w, Int8Rows x, Index rows, BlockRange blocks, const Epilogue& epilogue,
                        OutputRows y);
  void (*multiply_float)(const FloatMatrix& w, FloatRows x, Index rows, BlockRange blocks, const Epilogue& epilogue,
                         OutputRows y);

  // y may be x.
  void (*normalize)(const Norm& norm, FloatRows x, Index rows, OutputRows y);

  // out[K] = table[id] * scale + position[K].
  void (*embed_int8)(const Int8Matrix& table, Index id, float scale, const float* position, float* out);
  void (*embed_float)(const FloatMatrix& table, Index id, float scale, const float* position, float* out);

  // Writes the key [H, D] and value [H, D] of one position.
  void (*write_int8)(Heads heads, const Int8Cache& cache, Index position, const float* key, const float* value);
  void (*write_float)(Heads heads, const FloatCache& cache, Index position, const float* key, const float* value);

  // Self- and cross-attention over a cache; the encoder attends in float over a cache in scratch memory.
  void (*attend_int8)(Heads heads, const Int8Cache& cache, const Attention& attention);
  void (*attend_float)(Heads heads, const FloatCache& cache, const Attention& attention);

  // One position of a recurrent unit (SSRU, Kim et al. 2019) in each row. The products of its inputs are x [rows, 2 W]:
  // W u, then W_f u + b_f. c = f * c + (1 - f) * W u with f = sigmoid(W_f u + b_f); y += ReLU(c).
  void (*recur)(FloatRows x, Index rows, Index width, const StateRows& states, OutputRows y);

  // Takes one strip of rows of logits: logits[i] of each row belongs to the id kStrip * strip + i. Those of ids that
  // the vocabulary lacks are -inf.
  void (*choose_strip)(FloatRows logits, Index rows, Index strip, Choice* choices);
  // Adds the best candidates of another thread's list.
  void (*choose_merge)(Choice& choice, const Candidate* others, Index count);
  // Returns log(sum(exp(logits))) and writes the best tokens, best first, the lower id first in a tie, with
  // scores logit - log_sum. A row with NaN or +inf, or with -inf alone, has NaN for all of them, and ids 0, 1, ...
  // `choice.best` is spent afterward.
  float (*choose_finish)(Choice& choice, Index vocabulary, float* best_scores, std::int64_t* best_ids);
};

// Instruction sets of this build that this processor has, the slowest (portable) first.
std::vector<const Kernels*> available_kernels();

// The kernels by name: portable, avx2, avx-vnni, avx512, amx or neon. Throws std::runtime_error if this processor or
// build has none of that name.
const Kernels& kernels_for(std::string_view name);

// The kernels named by the environment variable DRAGOMAN_INSTRUCTIONS, or the fastest that this processor has.
const Kernels& chosen_kernels();

}  // namespace dragoman
