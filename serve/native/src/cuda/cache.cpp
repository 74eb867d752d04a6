#include "cuda/cache.hpp"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace dragoman::cuda {
namespace {

constexpr int64_t kWordBytes = 4;
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
      if (block.row_bytes() % kWordBytes != 0) throw std::invalid_argument(spec.name + ": expected whole words");
      blocks.push_back(std::move(block));
      found = std::prev(blocks.end());
    }
    found->names.push_back(spec.name);
  }
  if (blocks.empty()) throw std::invalid_argument("states: expected those of a Transformer");
  return blocks;
}

// Returns the numbers of rows in the matrix of a block, those of each state one behind the other.
std::vector<int64_t> matrix_rows(const StateBlock& block, int64_t block_rows, const int64_t* rows, size_t count) {
  std::vector<int64_t> numbers;
  for (size_t state = 0; state < block.names.size(); ++state)
    for (size_t index = 0; index < count; ++index)
      numbers.push_back(static_cast<int64_t>(state) * block_rows + rows[index]);
  return numbers;
}

// Returns a state as heads of positions in words.
Shape as_words(const StateBlock& block) {
  const int64_t words = block.size * static_cast<int64_t>(element_bytes(block.element)) / kWordBytes;
  return {block.rows, block.heads, block.capacity, words};
}

}  // namespace

size_t StateBlock::row_bytes() const { return TensorSpec{"", element, {heads, capacity, size}}.bytes(); }

char* StateBlock::state(const DeviceMemory& block, size_t number, int64_t block_rows) const {
  return block.data() + number * static_cast<size_t>(block_rows) * row_bytes();
}

Shape StateBlock::matrix(int64_t block_rows) const {
  return {static_cast<int64_t>(names.size()) * block_rows, static_cast<int64_t>(row_bytes()) / kWordBytes};
}

DeviceCache::DeviceCache(const DeviceConfig& config, std::shared_ptr<Device> device)
    : device_(std::move(device)),
      copied_rows_(static_cast<size_t>(config.copied_rows)),
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

size_t DeviceCache::staging_bytes() const {
  size_t most = 0;
  for (const std::vector<StateBlock>* blocks : {&source_, &target_})
    for (const StateBlock& block : *blocks)
      most = std::max({most, 2 * Staging::rounded(block.names.size() * copied_rows_ * sizeof(int64_t)),
                       Staging::rounded(static_cast<size_t>(block.capacity) * sizeof(int64_t))});
  return most;
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

void DeviceCache::write(const DeviceSessions& sessions, Staging& staging, int64_t encoded_rows, const int32_t* counts,
                        size_t sources, const int32_t* rows) {
  std::vector<int64_t> from, to;
  for (size_t source = 0; source < sources; ++source)
    for (int32_t index = 0; index < counts[source]; ++index) {
      from.push_back(static_cast<int64_t>(source));
      to.push_back(*rows++);
    }
  for (const StateBlock& block : source_) copy(sessions, staging, block.encoded, encoded_rows, block, from, to);
}

void DeviceCache::branch(const DeviceSessions& sessions, Staging& staging, const std::vector<int64_t>& sources,
                         const std::vector<int64_t>& targets) {
  for (const StateBlock& block : target_) copy(sessions, staging, block.memory, block.rows, block, sources, targets);
}

void DeviceCache::copy(const DeviceSessions& sessions, Staging& staging, const DeviceMemory& from, int64_t from_rows,
                       const StateBlock& block, const std::vector<int64_t>& sources,
                       const std::vector<int64_t>& targets) const {
  for (size_t first = 0; first < sources.size(); first += copied_rows_) {
    const size_t count = std::min(copied_rows_, sources.size() - first);
    const auto read = matrix_rows(block, from_rows, sources.data() + first, count);
    const auto written = matrix_rows(block, block.rows, targets.data() + first, count);
    const auto [source_rows, target_rows] = staging.put(read, written);
    const auto copies = static_cast<int64_t>(read.size());
    DeviceBinding binding(sessions, sessions.copy_rows);
    binding.input("source", from.data(), ElementType::kFloat, block.matrix(from_rows));
    binding.input("target", block.memory.data(), ElementType::kFloat, block.matrix(block.rows));
    binding.input("source_rows", source_rows, ElementType::kInt64, {copies});
    binding.input("target_rows", target_rows, ElementType::kInt64, {copies, 1});
    binding.output("copied", block.memory.data(), ElementType::kFloat, block.matrix(block.rows));
    binding.run();
  }
}

// Old and new rows overlap: states move from the end at which no state overwrites one that has not moved yet.
void DeviceCache::resize(const DeviceSessions& sessions, Staging& staging, int64_t capacity) {
  std::vector<int64_t> positions(static_cast<size_t>(capacity));
  std::iota(positions.begin(), positions.end(), 0);
  // Positions beyond the old capacity repeat the last one, which keeps them finite.
  for (int64_t& position : positions) position = std::min(position, source_capacity() - 1);
  const void* put = staging.put(positions)[0];
  const bool shrinks = capacity < source_capacity();
  for (StateBlock& block : source_) {
    const Shape before = as_words(block);
    const size_t count = block.names.size(), before_bytes = static_cast<size_t>(block.rows) * block.row_bytes();
    block.capacity = capacity;
    const size_t after_bytes = static_cast<size_t>(block.rows) * block.row_bytes();
    for (size_t index = 0; index < count; ++index) {
      const size_t number = shrinks ? index : count - 1 - index;
      DeviceBinding binding(sessions, sessions.resize);
      binding.input("source", block.memory.data() + number * before_bytes, ElementType::kFloat, before);
      binding.input("positions", put, ElementType::kInt64, {capacity});
      binding.output("resized", block.spare.data(), ElementType::kFloat, as_words(block));
      binding.run();
      device_->copy(block.memory.data() + number * after_bytes, block.spare.data(), after_bytes);
    }
  }
}

void DeviceCache::fill(uint8_t byte) {
  for (const std::vector<StateBlock>* blocks : {&source_, &target_})
    for (const StateBlock& block : *blocks) device_->fill(block.memory.data(), byte, block.memory.bytes());
}

}  // namespace dragoman::cuda
