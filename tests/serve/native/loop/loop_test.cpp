// Runs the loop without Python, for the sanitizers: engines in threads, many callers, failures, and hostile bytes.
//
// A sequence has the same result alone and in any company; the Python tests compare the results with a reference.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "loop/api.hpp"
#include "loop/loop.hpp"
#include "loop/records.hpp"
#include "fake_model.hpp"

DRAGOMAN_API int32_t dragoman_loop_submit(dragoman::Loop* loop, const uint8_t* bytes, uint64_t size);

namespace {

using namespace dragoman;

#define REQUIRE(condition)                                               \
  do {                                                                   \
    if (!(condition)) {                                                  \
      std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition);       \
      std::exit(1);                                                      \
    }                                                                    \
  } while (false)

struct Job {
  Submission submission;
  SearchNumbers options;
  Ids source_ids, forced_ids, candidate_ids;
  uint32_t start_tokens = 0;
  bool new_word = false, shortlist = false;
};

// The file of a shortlist with two tokens for each source token; it stays until the end of the program.
const std::string& shortlist_path() {
  static const std::string path = [] {
    std::string name = "/tmp/dragoman-shortlist-XXXXXX";
    const int file = mkstemp(name.data());
    std::vector<uint64_t> words{0xF11A48D5013417F5u, 0, 4, 2, kEndless + 2, 2 * (kEndless + 1)};
    for (uint64_t token = 0; token <= kEndless + 1; ++token) words.push_back(2 * token);
    for (uint64_t token = 0; token <= kEndless; ++token) words.push_back((3 + token % 7) << 32 | (5 + token % 8));
    const auto bytes = static_cast<ssize_t>(8 * words.size());
    REQUIRE(file >= 0 && write(file, words.data(), 8 * words.size()) == bytes);
    close(file);
    return name;
  }();
  return path;
}

std::vector<uint8_t> bytes_of(const Job& job) {
  SubmissionRecord record{job.submission, job.options, {}};
  record.arrays.source_tokens = static_cast<uint32_t>(job.source_ids.size());
  record.arrays.forced_tokens = static_cast<uint32_t>(job.forced_ids.size());
  record.arrays.candidate_tokens = static_cast<uint32_t>(job.candidate_ids.size());
  record.arrays.start_tokens = job.start_tokens;
  record.arrays.flags = (job.new_word ? 4 : 0) + (job.shortlist ? 16 : 0);
  const auto* first = reinterpret_cast<const uint8_t*>(&record);
  std::vector<uint8_t> bytes(first, first + sizeof record);
  for (const Ids* ids : {&job.source_ids, &job.forced_ids, &job.candidate_ids}) {
    const auto* begin = reinterpret_cast<const uint8_t*>(ids->data());
    bytes.insert(bytes.end(), begin, begin + 8 * ids->size());
  }
  return bytes;
}

Job any_job(uint64_t ticket, std::mt19937& random) {
  Job job;
  job.submission.ticket = ticket;
  job.submission.fairness_key = random() % 5;
  job.submission.priority = static_cast<int32_t>(random() % 2);
  job.options.max_target_tokens = 1 + static_cast<int32_t>(random() % 12);
  job.options.length_penalty = 0.5 * (random() % 3);
  job.submission.streamed = random() % 2;
  for (uint32_t count = 1 + random() % 5; count > 0; --count) job.source_ids.push_back(3 + random() % 40);
  if (random() % 3 == 0) job.source_ids = {3, 4};  // sequences of a request with equal sources share them
  if (random() % 20 == 0) job.source_ids.push_back(kPoison);
  if (ticket % 100 < 60) return job;  // plain ones follow each other, so that steps run ahead
  job.options.coverage_penalty = random() % 3 == 0 ? 0.3 : 0;
  if (random() % 3 == 0) {
    job.options.temperature = 1.5, job.options.hypotheses = 1 + static_cast<int32_t>(random() % 3);
    job.options.top_k = random() % 5, job.options.top_p = random() % 2 ? 1 : 0.7, job.options.seed = random();
  } else {
    job.options.beam_size = 1 + static_cast<int32_t>(random() % 4);
    job.options.hypotheses = 1 + static_cast<int32_t>(random()) % job.options.beam_size;
    if (job.options.hypotheses < 1) job.options.hypotheses = 1;
  }
  if (random() % 3 == 0) job.options.repetition_penalty = 1.4f;
  job.options.no_repeat_ngram_tokens = static_cast<int32_t>(random() % 3);
  job.options.min_target_tokens = static_cast<int32_t>(random() % 4);
  job.options.alignments = random() % 2;
  if (random() % 5 == 0) job.forced_ids.push_back(3 + random() % 10);
  job.new_word = random() % 3 == 0;
  job.start_tokens = static_cast<uint32_t>(random() % (job.forced_ids.size() + 1));
  job.shortlist = random() % 2;
  if (random() % 3 == 0) job.candidate_ids.push_back(3 + random() % 10);
  return job;
}

struct Service {
  int ends[2];
  std::unique_ptr<Loop> loop;
  std::vector<std::shared_ptr<FakeModel>> models;
  std::map<uint64_t, std::string> results;  // failure and hypotheses by ticket

  explicit Service(int engines, int64_t budget = 40) {
    REQUIRE(pipe(ends) == 0);
    const LoopConfig config{8,  engines, budget, 900,     kBegin,          kEnd,       kVocabulary,
                            60, 60,      1,      ends[1], {2, {0.001, 0.1}}, {2, {1, 4}}, shortlist_path().c_str()};
    loop = std::make_unique<Loop>(config, Ids{4, 6, 7, 11}, monotonic_seconds);
    for (int number = 0; number < engines; ++number) {
      models.push_back(std::make_shared<FakeModel>(8, true));
      models.back()->ahead = true;
      loop->add_engine(models.back());
    }
  }
  ~Service() {
    loop->completions().close();
    close(ends[0]), close(ends[1]);
  }

  void submit(const Job& job) {
    const std::vector<uint8_t> bytes = bytes_of(job);
    REQUIRE(loop->submit(bytes.data(), bytes.size()));
  }

  // Reads the records as Python does.
  void collect() {
    const Records& records = loop->completions().take(false);
    const uint8_t* at = records.data();
    const auto* end = at + records.size();
    while (at != end) {
      uint32_t kind, count;
      uint64_t ticket;
      std::memcpy(&kind, at, 4), std::memcpy(&count, at + 4, 4), std::memcpy(&ticket, at + 8, 8);
      at += 16;
      if (kind == uint32_t(RecordKind::kToken)) {
        at += 8;
        continue;
      }
      if (kind == uint32_t(RecordKind::kProblem)) {
        at += (count + 7) / 8 * 8;
        continue;
      }
      std::string result(reinterpret_cast<const char*>(at + 40), 4);
      at += 48;
      for (; count > 0; --count) {
        uint32_t sizes[4];
        std::memcpy(sizes, at + 16, 16);
        const size_t bytes = 32 + 8 * sizes[1] + (4 * sizes[2] + 7) / 8 * 8 + (4 * sizes[1] * sizes[3] + 7) / 8 * 8;
        result.append(reinterpret_cast<const char*>(at), bytes);
        at += bytes;
      }
      REQUIRE(results.emplace(ticket, result).second);
    }
  }

  void wait_for(size_t count) {
    char buffer[64];
    for (collect(); results.size() < count; collect()) REQUIRE(read(ends[0], buffer, sizeof buffer) > 0);
  }

  void stop() {
    for (size_t number = 0; number < models.size(); ++number) REQUIRE(loop->engine(int64_t(number)).stop(kNever));
    collect();
  }
};

std::string alone(const Job& job) {
  Service service(1);
  service.models[0]->ahead = false;
  service.submit(job);
  while (service.results.empty()) {
    service.loop->engine(0).step();
    service.collect();
  }
  return service.results.begin()->second;
}

void any_company_has_the_results_of_each_alone() {
  std::mt19937 random(1);
  std::vector<Job> jobs;
  for (uint64_t ticket = 0; ticket < 300; ++ticket) jobs.push_back(any_job(ticket, random));
  Service service(2);
  for (int number = 0; number < 2; ++number) service.loop->engine(number).start();
  std::vector<std::thread> callers;
  for (size_t caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&, caller] {
      for (size_t job = caller; job < jobs.size(); job += 3) service.submit(jobs[job]);
    });
  }
  for (std::thread& caller : callers) caller.join();
  service.wait_for(jobs.size());
  service.stop();
  for (const Job& job : jobs) REQUIRE(service.results.at(job.submission.ticket) == alone(job));
}

void cancellations_failures_and_deadlines_lose_nothing() {
  std::mt19937 random(2);
  Service service(2);
  std::atomic<uint64_t> count{0};
  for (const auto& model : service.models) {
    model->on_step = [&count, raw = model.get()] { raw->decode_fails = ++count % 37 == 0; };
    model->on_encode = [&count, raw = model.get()] { raw->encode_fails = ++count % 41 == 0; };
  }
  for (int number = 0; number < 2; ++number) service.loop->engine(number).start();
  std::thread other([&] {
    for (int round = 0; round < 300; ++round) {
      service.loop->scheduler().cancel(static_cast<uint64_t>(round));
      service.loop->scheduler().load();
      service.loop->scheduler().rows_before(kNever, 0);
      (void)service.loop->engine(round % 2).health();
    }
  });
  for (uint64_t ticket = 0; ticket < 300; ++ticket) {
    Job job = any_job(ticket, random);
    if (ticket % 7 == 0) job.submission.deadline_seconds = monotonic_seconds() + 1e-4;
    if (ticket % 11 == 0) job.submission.start_by_seconds = monotonic_seconds();
    service.submit(job);
  }
  other.join();
  service.wait_for(300);
  service.stop();
  REQUIRE(service.loop->scheduler().load().running == 0);
  REQUIRE(service.loop->scheduler().load().waiting == 0);
}

void a_hanging_engine_is_abandoned_and_may_wake_up_later() {
  std::mt19937 random(3);
  // The abandoned thread may use them until the end of the program.
  static std::mutex gate;
  static std::atomic<bool> stepping{false};
  std::weak_ptr<FakeModel> model;
  {
    Service service(1);
    service.models[0]->on_step = [] {
      stepping = true;
      const std::lock_guard<std::mutex> wait(gate);
    };
    gate.lock();
    service.loop->engine(0).start();
    for (uint64_t ticket = 0; ticket < 9; ++ticket) service.submit(any_job(ticket, random));
    while (!stepping) std::this_thread::yield();
    REQUIRE(!service.loop->engine(0).stop(0.01));
    service.collect();
    REQUIRE(service.results.size() == 9);
    model = service.models[0];
  }
  REQUIRE(!model.expired());
  gate.unlock();
  while (!model.expired()) std::this_thread::yield();
}

void an_idle_engine_keeps_no_sequence() {
  std::mt19937 random(5);
  Service service(1);
  for (uint64_t ticket = 0; ticket < 20; ++ticket) {
    service.submit(any_job(ticket, random));
    const std::weak_ptr<Sequence> sequence = service.loop->scheduler().line().at(0);
    for (; service.results.count(ticket) == 0; service.collect()) service.loop->engine(0).step();
    REQUIRE(sequence.expired());
  }
}

void a_lost_state_fails_what_runs_and_no_later_sequence() {
  Service service(1);
  const auto job = [](uint64_t ticket) {
    Job made;
    made.submission.ticket = ticket;
    made.options.max_target_tokens = 12;
    made.source_ids = {static_cast<int64_t>(5 + ticket), kEndless};
    return made;
  };
  for (uint64_t ticket = 0; ticket < 2; ++ticket) {
    service.submit(job(ticket));
    service.loop->engine(0).step();
    service.collect();
    REQUIRE(service.results.size() == 2 * ticket);
    service.models[0]->on_encode = [] { throw StateLost("a copy failed"); };
  }
  service.models[0]->on_encode = [] {};
  service.submit(job(2));
  for (; service.results.count(2) == 0; service.collect()) service.loop->engine(0).step();
  REQUIRE(service.results.at(2) == alone(job(2)));
}

void hostile_bytes_are_refused() {
  std::mt19937 random(4);
  Service service(1);
  const std::vector<uint8_t> valid = bytes_of(any_job(1, random));
  for (size_t size = 1; size < valid.size(); ++size) {
    REQUIRE(dragoman_loop_submit(service.loop.get(), valid.data(), size) == -1);
  }
  for (int round = 0; round < 20000; ++round) {
    std::vector<uint8_t> bytes = bytes_of(any_job(2 + uint64_t(round), random));
    for (uint32_t change = 1 + random() % 4; change > 0; --change) bytes[random() % bytes.size()] = uint8_t(random());
    dragoman_loop_submit(service.loop.get(), bytes.data(), bytes.size());
    if (round % 20 == 0) service.loop->engine(0).step();
  }
  service.loop->scheduler().fail_all(Failure::kDraining);
  while (service.loop->scheduler().load().running > 0) service.loop->engine(0).step();
}

}  // namespace

int main() {
  any_company_has_the_results_of_each_alone();
  cancellations_failures_and_deadlines_lose_nothing();
  a_hanging_engine_is_abandoned_and_may_wake_up_later();
  an_idle_engine_keeps_no_sequence();
  a_lost_state_fails_what_runs_and_no_later_sequence();
  hostile_bytes_are_refused();
  unlink(shortlist_path().c_str());
  std::puts("passed");
  return 0;
}
