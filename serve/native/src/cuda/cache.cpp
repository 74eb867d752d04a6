#include "cuda/cache.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace dragoman::cuda {
namespace {

constexpr size_t kAxes = 3;  // heads, tokens and size

std::vector<StateBlock> blocks_of(const TensorRecords& records, ElementType element, int64_t rows) {
  std::vector<StateBlock> blocks;
  for (const TensorSpec& spec : specs_of(records)) {
    if (spec.shape.size() != kAxes) throw std::invalid_argument(spec.name + ": expected heads, tokens and size");
    const auto alike = [&](const StateBlock& block) {
      return Shape{block.heads, block.capacity, block.size} == spec.shape;
    };
    auto found = std::find_if(blocks.begin(), blocks.end(), alike);
    if (found == blocks.end()) {
      StateBlock block{{}, element, rows, spec.shape[0], spec.shape[1], spec.shape[2], {}, {}, {}};
      blocks.push_back(std::move(block));
      found = std::prev(blocks.end());
    }
    found->names.push_back(spec.name);
  }
  if (blocks.empty()) throw std::invalid_argument("states: expected those of a Transformer");
  return blocks;
}

}  // namespace

size_t StateBlock::token_bytes() const { return TensorSpec{"", element, {size}}.bytes(); }
size_t StateBlock::row_bytes() const { return TensorSpec{"", element, {heads, capacity, size}}.bytes(); }

char* StateBlock::state(const DeviceMemory& block, size_t number, int64_t block_rows) const {
  return block.data() + number * static_cast<size_t>(block_rows) * row_bytes();
}

DeviceCache::DeviceCache(const DeviceConfig& config, std::shared_ptr<Device> device)
    : device_(std::move(device)),
      source_(blocks_of(config.source_states, static_cast<ElementType>(config.element), config.slots)),
      target_(blocks_of(config.target_states, static_cast<ElementType>(config.element), config.slots)) {
  const auto rows_bytes = [](const StateBlock& block, int64_t rows) {
    return static_cast<size_t>(rows) * block.row_bytes();
  };
  for (std::vector<StateBlock>* blocks : {&source_, &target_})
    for (StateBlock& block : *blocks)
      block.memory = DeviceMemory(device_, block.names.size() * rows_bytes(block, block.rows));
  for (StateBlock& block : source_) {
    block.encoded = DeviceMemory(device_, block.names.size() * rows_bytes(block, config.encoder_rows));
    block.spare = DeviceMemory(device_, rows_bytes(block, block.rows));
  }
}

void DeviceCache::bind_decoder(DeviceBinding& binding, int64_t rows) const {
  for (const StateBlock& block : source_)
    for (size_t number = 0; number < block.names.size(); ++number)
      binding.input(block.names[number], block.state(block.memory, number, block.rows), block.element,
                    block.shape(rows));
  for (const StateBlock& block : target_)
    for (size_t number = 0; number < block.names.size(); ++number) {
      char* state = block.state(block.memory, number, block.rows);
      binding.input("past_" + block.names[number], state, block.element, block.shape(rows));
      binding.output("present_" + block.names[number], state, block.element, block.shape(rows));
    }
}

void DeviceCache::bind_encoder(DeviceBinding& binding, int64_t rows) const {
  for (const StateBlock& block : source_)
    for (size_t number = 0; number < block.names.size(); ++number)
      binding.output(block.names[number], block.state(block.encoded, number, rows), block.element, block.shape(rows));
}

void DeviceCache::write(int64_t encoded_rows, const int32_t* counts, size_t sources, const int32_t* rows) {
  for (size_t source = 0; source < sources; ++source)
    for (const int32_t* end = rows + counts[source]; rows != end; ++rows)
      for (const StateBlock& block : source_)
        copy(block.encoded, encoded_rows, block,
             {static_cast<int32_t>(source), *rows, static_cast<int32_t>(block.capacity)});
}

void DeviceCache::branch(const RowCopy& rows) {
  for (const StateBlock& block : target_) copy(block.memory, block.rows, block, rows);
}

void DeviceCache::copy(const DeviceMemory& from, int64_t from_rows, const StateBlock& block,
                       const RowCopy& rows) const {
  const auto row = [&](const DeviceMemory& memory, int32_t number) {
    return memory.data() + static_cast<size_t>(number) * block.row_bytes();
  };
  const auto heads = static_cast<size_t>(block.heads), pitch = static_cast<size_t>(block.capacity) * block.token_bytes();
  device_->copy_lines({row(block.memory, rows.to),
                       row(from, rows.from),
                       {pitch, static_cast<size_t>(block.rows) * heads},
                       {pitch, static_cast<size_t>(from_rows) * heads},
                       static_cast<size_t>(rows.tokens) * block.token_bytes(),
                       heads,
                       block.names.size()});
}

// Old and new rows overlap: states move from the end at which no state overwrites one that has not moved yet. New
// positions are zeros, which are finite.
void DeviceCache::resize(int64_t capacity) {
  const int64_t old_capacity = source_capacity();
  for (StateBlock& block : source_) block.capacity = capacity;
  for (StateBlock& block : source_) {
    const size_t count = block.names.size(), lines = static_cast<size_t>(block.rows * block.heads);
    const size_t before = static_cast<size_t>(old_capacity) * block.token_bytes();
    const size_t after = static_cast<size_t>(capacity) * block.token_bytes();
    for (size_t index = 0; index < count; ++index) {
      const size_t number = capacity < old_capacity ? index : count - 1 - index;
      device_->fill(block.spare.data(), 0, lines * after);
      device_->copy_lines({block.spare.data(),
                           block.memory.data() + number * lines * before,
                           {after, lines},
                           {before, lines},
                           std::min(before, after),
                           lines,
                           1});
      device_->copy(block.memory.data() + number * lines * after, block.spare.data(), lines * after);
    }
  }
}

void DeviceCache::fill(uint8_t byte) {
  for (const std::vector<StateBlock>* blocks : {&source_, &target_})
    for (const StateBlock& block : *blocks) device_->fill(block.memory.data(), byte, block.memory.bytes());
}

}  // namespace dragoman::cuda
