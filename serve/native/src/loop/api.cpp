#include "loop/api.hpp"

#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "loop/guard.hpp"
#include "loop/loop.hpp"

namespace {

using dragoman::check_size;
using dragoman::guarded;
using dragoman::Loop;

constexpr uint32_t kVersion = 3;

Loop& of(DragomanLoop* loop) { return *reinterpret_cast<Loop*>(loop); }

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void append(const dragoman::PhaseCounters& phase, std::vector<uint64_t>& values) {
  values.push_back(phase.nanoseconds);
  values.push_back(phase.sequences);
  for (const dragoman::Histogram* histogram : {&phase.seconds, &phase.widths}) {
    for (size_t place = 0; place < histogram->size(); ++place) values.push_back(histogram->count(place));
  }
}

}  // namespace

uint32_t dragoman_loop_version() { return kVersion; }

std::string& dragoman::last_error() {
  thread_local std::string message;
  return message;
}

const char* dragoman_loop_error() { return dragoman::last_error().c_str(); }

double dragoman_loop_seconds() { return monotonic_seconds(); }

int32_t dragoman_loop_create(const DragomanLoopConfig* config, DragomanLoop** loop) {
  return guarded([&] {
    check_size(config);
    dragoman::EngineConfig engine{config->begin_id, config->end_id, {}, {}};
    engine.seconds_bounds.assign(config->seconds_bounds, config->seconds_bounds + config->seconds_count);
    engine.sequence_bounds.assign(config->sequence_bounds, config->sequence_bounds + config->sequence_count);
    auto made = std::make_unique<Loop>(
        dragoman::SchedulerConfig{config->engine_rows, config->engines, config->prefill_token_budget,
                                  config->running_token_budget},
        engine,
        dragoman::Limits{config->vocabulary, config->max_source_tokens, config->max_target_tokens,
                         config->aligned != 0},
        static_cast<int>(config->descriptor), monotonic_seconds);
    *loop = reinterpret_cast<DragomanLoop*>(made.release());
  });
}

void dragoman_loop_destroy(DragomanLoop* loop) {
  of(loop).completions().close();
  delete &of(loop);
}

int32_t dragoman_loop_submit(DragomanLoop* loop, const uint8_t* bytes, uint64_t size) {
  return guarded([&] { return of(loop).submit(bytes, size) ? 0 : 1; });
}

int32_t dragoman_loop_cancel(DragomanLoop* loop, uint64_t ticket) {
  return guarded([&] { of(loop).scheduler().cancel(ticket); });
}

int32_t dragoman_loop_drain(DragomanLoop* loop) {
  return guarded([&] { of(loop).scheduler().drain(); });
}

int32_t dragoman_loop_load(DragomanLoop* loop, DragomanLoad* load) {
  return guarded([&] {
    check_size(load);
    const dragoman::Load now = of(loop).scheduler().load();
    *load = {sizeof(DragomanLoad), now.waiting, now.waiting_rows, now.running, now.running_rows, now.most_running};
  });
}

int32_t dragoman_loop_oldest(DragomanLoop* loop, double* seconds) {
  return guarded([&] { *seconds = of(loop).scheduler().oldest_seconds(); });
}

int32_t dragoman_loop_rows_before(DragomanLoop* loop, double deadline_seconds, int32_t priority, int64_t* rows) {
  return guarded([&] { *rows = of(loop).scheduler().rows_before(deadline_seconds, priority); });
}

int32_t dragoman_loop_take(DragomanLoop* loop, int32_t pause, const uint8_t** bytes, uint64_t* size) {
  return guarded([&] {
    const dragoman::Records& records = of(loop).completions().take(pause != 0);
    *bytes = records.data();
    *size = records.size();
  });
}

int32_t dragoman_engine_start(DragomanLoop* loop, int64_t engine) {
  return guarded([&] { of(loop).engine(engine).start(); });
}

int32_t dragoman_engine_stop(DragomanLoop* loop, int64_t engine, double timeout_seconds) {
  return guarded([&] { return of(loop).engine(engine).stop(timeout_seconds) ? 0 : 1; });
}

int32_t dragoman_engine_health(DragomanLoop* loop, int64_t engine, DragomanHealth* health) {
  return guarded([&] {
    check_size(health);
    const dragoman::Engine& found = of(loop).engine(engine);
    *health = {sizeof(DragomanHealth), found.step_started_seconds(), found.healthy() ? 1 : 0, found.failure_count()};
  });
}

int32_t dragoman_engine_counters(DragomanLoop* loop, int64_t engine, uint64_t* values, uint64_t count) {
  return guarded([&] {
    const dragoman::Engine& found = of(loop).engine(engine);
    std::vector<uint64_t> all;
    append(found.encode_counters, all);
    append(found.decode_counters, all);
    all.push_back(found.search_nanoseconds);
    if (all.size() != count) throw std::invalid_argument("counters: another number");
    std::copy(all.begin(), all.end(), values);
  });
}
