// Prints the time of a decoder step of models with random weights in 8 bits, without and with shortlists, one thread.
//
// A translation has 16 source and 24 target tokens. Lists hold random tokens; the time of a step has its share of their
// copies. Beams do not branch here.
#include <cstdio>
#include <ctime>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "model/decoder.hpp"

using namespace dragoman;

namespace {

constexpr Index kSourceTokens = 16, kTargetTokens = 24, kBestTokens = 8;

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Random weights in the order in which the decoder reads them.
class Weights {
 public:
  explicit Weights(const Config& config) {
    const Index d = config.d_model;
    linear(round_up(config.vocabulary, kLanes), d, true);
    fill<float>({kTargetTokens, d});
    for (Index layer = 0; layer < config.decoder_layers; ++layer) {
      linear((config.recurrent ? 2 : 3) * d, d);
      if (!config.recurrent) linear(d, d);
      norm(d);
      for (int part = 0; part < 2; ++part) linear(d, d);
      norm(d);
      linear(config.d_ff, d);
      linear(d, config.d_ff);
      norm(d);
    }
    if (config.pre_norm) norm(d);
    linear(config.vocabulary, d);
  }
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  template <class T>
  void fill(std::vector<std::int64_t> shape) {
    std::size_t count = 1;
    for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
    auto memory = std::make_shared<Buffer<T>>();
    T* values = memory->fit(static_cast<Index>(count));
    std::uniform_int_distribution<int> draw(-127, 127);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(sizeof(T) == 1 ? draw(random_) : 0.001 * draw(random_));
    constexpr auto type = sizeof(T) == 1 ? ort::ElementType::kInt8
                          : std::is_same_v<T, float> ? ort::ElementType::kFloat : ort::ElementType::kInt32;
    tensors_.push_back({type, std::move(shape), values});
    memory_.push_back(memory);
  }
  void linear(Index outputs, Index inputs, bool table = false) {
    const Index padded = round_up(outputs, kLanes);
    fill<std::int8_t>({padded / kLanes, round_up(inputs, 4) / 4, kLanes, 4});
    fill<float>({padded});
    if (table) return;
    fill<std::int32_t>({padded});
    fill<float>({padded});
  }
  void norm(Index width) {
    fill<float>({width});
    fill<float>({width});
  }

  std::mt19937 random_{1};
  std::vector<std::shared_ptr<void>> memory_;
  std::vector<Tensor> tensors_;
};

class Model {
 public:
  Model(const Config& config, Index rows)
      : weights_(config), decoder_(config, weights_.tensors(), chosen_kernels()), vocabulary_(config.vocabulary) {
    const Heads heads = config.head_shape();
    const Index blocks = round_up(kTargetTokens, kLanes) / kLanes;
    target_ = {nullptr, nullptr, rows, config.decoder_layers, blocks, heads};
    source_ = {nullptr, nullptr, rows, config.decoder_layers, 1, heads};
    for (Cache* cache : {&target_, &source_}) {
      const Index all = rows * cache->layers * cache->blocks * 2 * heads.count;
      cache->values = values_[cache == &source_].fit(all * Cache::block_size(heads, true));
      cache->scales = scales_[cache == &source_].fit(all * kLanes);
      std::fill_n(cache->scales, all * kLanes, 0.01f);
    }
    states_ = {state_memory_.fit(rows * config.decoder_layers * config.d_model), rows, config.decoder_layers,
               config.d_model};
  }

  // Returns the microseconds of a step: the best of some translations. Lists of no candidates are none.
  double step_microseconds(Index rows, Index rows_of_source, Index candidates) {
    double best = 1e9;
    double spent = 0;
    for (int repeat = 0; repeat < 3 || (spent < 0.3 && repeat < 200); ++repeat) {
      const double seconds = translate(rows, rows_of_source, candidates);
      best = std::min(best, seconds);
      spent += seconds;
    }
    return best * 1e6 / kTargetTokens;
  }

 private:
  double translate(Index rows, Index rows_of_source, Index candidates) {
    const auto count = static_cast<std::size_t>(rows);
    std::vector<std::int64_t> tokens(count, 5), best_ids(count * kBestTokens);
    std::vector<std::int32_t> positions(count), targets(count), sources(count), lengths(count, kSourceTokens), ids;
    std::vector<TokenList> lists;
    std::vector<float> sums(count), scores(best_ids.size());
    std::iota(targets.begin(), targets.end(), 0);
    for (std::size_t row = 0; row < count; ++row) sources[row] = targets[row] / static_cast<std::int32_t>(rows_of_source);
    if (candidates > 0) lists = draw_lists(sources, candidates, ids);
    const double started = cpu_seconds();
    for (std::int32_t position = 0; position < kTargetTokens; ++position) {
      positions.assign(count, position);
      const StepRows step{rows, tokens.data(), positions.data(), targets.data(), sources.data(), lengths.data(),
                          target_, states_, source_, {nullptr, 0, nullptr},
                          {kBestTokens, sums.data(), scores.data(), best_ids.data()},
                          {lists.empty() ? nullptr : lists.data(), sources.data()}, &heads_, nullptr};
      decoder_.step(step, Parallel(), workspace_);
    }
    return cpu_seconds() - started;
  }

  // Returns the list of each row: `ids` gets one for each source.
  std::vector<TokenList> draw_lists(const std::vector<std::int32_t>& sources, Index candidates,
                                    std::vector<std::int32_t>& ids) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(vocabulary_));
    std::iota(all.begin(), all.end(), 0);
    const auto count = static_cast<std::size_t>(sources.back()) + 1;
    for (std::size_t source = 0; source < count; ++source)
      std::sample(all.begin(), all.end(), std::back_inserter(ids), candidates, random_);
    std::vector<TokenList> lists;
    for (const std::int32_t source : sources) lists.push_back({ids.data() + source * candidates, candidates, 0});
    for (std::size_t row = 0; row < lists.size(); ++row)
      lists[row].number = row > 0 && sources[row] == sources[row - 1] ? lists[row - 1].number : ++last_list_;
    return lists;
  }

  Weights weights_;
  Decoder decoder_;
  Index vocabulary_;
  Cache target_{}, source_{};
  States states_{};
  Buffer<std::int8_t> values_[2];
  Buffer<float> scales_[2], state_memory_;
  Workspace workspace_;
  std::vector<AlignmentHead> heads_;
  std::mt19937 random_{2};
  std::uint64_t last_list_ = 0;
};

Config shape(Index d_model, Index d_ff, Index heads, Index layers, Index vocabulary, bool recurrent) {
  Config config{};
  config.decoder_layers = layers;
  config.heads = heads;
  config.d_model = d_model;
  config.d_ff = d_ff;
  config.vocabulary = vocabulary;
  config.norm = Norm::Kind::kLayer;
  config.activation = Activation::kRelu;
  config.shortlists = config.int8 = true;
  config.recurrent = recurrent;
  config.embedding_scale = 1;
  config.epsilon = 1e-5f;
  return config;
}

}  // namespace

// The first argument selects the shapes whose names begin with it.
int main(int count, char** arguments) {
  const std::pair<const char*, Config> cases[] = {
      {"small", shape(128, 256, 4, 4, 12000, false)}, {"included", shape(192, 768, 4, 2, 8000, false)},
      {"tiny", shape(256, 1536, 8, 2, 32000, true)}, {"base", shape(512, 2048, 8, 6, 32000, false)},
      {"opus-mt", shape(512, 2048, 8, 6, 58101, false)}};
  const std::tuple<const char*, Index, Index> loads[] = {  // rows, and rows of a source
      {"64 rows", 64, 1}, {"16 beams of 4", 64, 4}, {"1 row", 1, 1}, {"1 beam of 4", 4, 4}};
  std::printf("%s, us per step; in brackets: times the step without lists\n", chosen_kernels().name);
  for (const auto& [name, config] : cases) {
    if (count > 1 && std::string(name).rfind(arguments[1], 0) != 0) continue;
    Model model(config, 64);
    for (const auto& [load, rows, rows_of_source] : loads) {
      const double whole = model.step_microseconds(rows, rows_of_source, 0);
      std::printf("%s, %s: whole %.1f", name, load, whole);
      for (const Index share : {32, 16, 8, 4, 2}) {
        const double listed = model.step_microseconds(rows, rows_of_source, config.vocabulary / share);
        std::printf("  1/%td %.1f (%.2f)", share, listed, listed / whole);
      }
      std::printf("\n");
    }
  }
}
