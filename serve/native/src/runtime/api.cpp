#include "runtime/api.hpp"

#include <memory>
#include <stdexcept>
#include <vector>

#include "loop/guard.hpp"
#include "loop/loop.hpp"
#include "runtime/session_model.hpp"
#include "runtime/sessions.hpp"

struct DragomanModel {
  std::shared_ptr<const dragoman::Sessions> sessions;
};

namespace {

constexpr int64_t kMostRank = 8;

std::vector<dragoman::TensorSpec> specs(const DragomanTensor* tensors, uint64_t count) {
  std::vector<dragoman::TensorSpec> all;
  for (uint64_t place = 0; place < count; ++place) {
    const DragomanTensor& each = tensors[place];
    if (each.rank < 0 || each.rank > kMostRank) throw std::invalid_argument("tensor: too many dimensions");
    all.push_back({each.name, static_cast<dragoman::ort::ElementType>(each.type),
                   {each.shape, each.shape + each.rank}, each.offset_bytes});
  }
  return all;
}

}  // namespace

int32_t dragoman_model_open(const DragomanModelConfig* config, DragomanModel** model) {
  return dragoman::guarded([&] {
    dragoman::check_size(config);
    const dragoman::SessionsConfig sessions{config->encoder,
                                            config->decoder,
                                            config->choose,
                                            config->weights,
                                            specs(config->encoder_weights, config->encoder_weight_count),
                                            specs(config->decoder_weights, config->decoder_weight_count),
                                            specs(config->source_cache, config->source_cache_count),
                                            specs(config->target_cache, config->target_cache_count),
                                            static_cast<int32_t>(config->threads),
                                            static_cast<int32_t>(config->vocabulary),
                                            static_cast<int32_t>(config->alignment_heads)};
    auto made = std::make_unique<DragomanModel>();
    made->sessions = std::make_shared<const dragoman::Sessions>(sessions);
    *model = made.release();
  });
}

void dragoman_model_close(DragomanModel* model) { delete model; }

int32_t dragoman_loop_add_engine(DragomanLoop* loop, DragomanModel* model, int64_t slots) {
  return dragoman::guarded([&] {
    reinterpret_cast<dragoman::Loop*>(loop)->add_engine(
        std::make_shared<dragoman::SessionModel>(model->sessions, static_cast<int32_t>(slots)));
  });
}
