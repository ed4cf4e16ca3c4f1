// A driver that launches nothing: it records what it was asked, and fails on demand. For tests.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "launch/driver.h"

namespace tcgen05::launch {

class RecordingDriver final : public Driver {
 public:
  struct Launch {
    std::string entry;
    Grid grid;
    Stream stream;
    std::string params;
  };

  Device properties{"fake B200", 10, 0, 148, 232448, 233472};
  std::string reason;                      // what `unavailable` says
  std::map<std::string, Result> failures;  // by function: "load_module", "launch", ...
  std::vector<std::string> calls;          // functions called, with what they were given
  std::vector<Launch> launches;

  std::string unavailable() override { return reason; }
  std::string error_name(Result result) override {
    return result == 715 ? "CUDA_ERROR_ILLEGAL_INSTRUCTION" : "CUDA_ERROR_" + std::to_string(result);
  }
  bool wants_ptx() override { return false; }

  Result enter(Stream stream, Context* context) override {
    *context = stream;  // each stream has a context of its own
    return record("enter", "");
  }
  void leave() override { record("leave", ""); }
  Result device(Device* device) override {
    *device = properties;
    return record("device", "");
  }
  Result load_module(const std::string& image, Module* module) override {
    *module = this;
    return record("load_module", std::to_string(image.size()) + " bytes");
  }
  Result get_function(Module, const std::string& entry, Function* function) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    entries_.push_back(entry);
    *function = reinterpret_cast<Function>(entries_.size());
    return record_locked("get_function", entry);
  }
  Result allow_shared(Function, uint32_t bytes) override {
    return record("allow_shared", std::to_string(bytes));
  }
  Result launch(Function function, const Grid& grid, Stream stream, const void* params,
                size_t bytes) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::string& entry = entries_.at(reinterpret_cast<size_t>(function) - 1);
    const Result result = record_locked("launch", entry);
    if (result == kSuccess)
      launches.push_back({entry, grid, stream, std::string(static_cast<const char*>(params), bytes)});
    return result;
  }

 private:
  Result record(const std::string& function, const std::string& given) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return record_locked(function, given);
  }
  Result record_locked(const std::string& function, const std::string& given) {
    calls.push_back(given.empty() ? function : function + " " + given);
    const auto failure = failures.find(function);
    return failure == failures.end() ? kSuccess : failure->second;
  }

  std::mutex mutex_;
  std::vector<std::string> entries_;
};

}  // namespace tcgen05::launch
