// Fuzzing of the virtual SM and of decode_plan. Built with sanitizers and run by .ci/fuzz:
//
//   fuzz FOLDER [--seed S] [--cases N] [--seconds T] [--only CASE] [FILE.ptx ...]
//
// FOLDER holds kernel.ptx, statements.txt and plans.txt; the PTX files, if any, are damaged and loaded too.
// Every case has a number and is the same in every run with the same seed; --only runs one and prints its
// text. A case may end in LoadError, ExecutionError or std::invalid_argument. Anything else (a crash, another
// exception, 30 seconds without an end, 3 GiB of memory) ends the run with the case's number.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

#include "plans.h"
#include "programs.h"
#include "random.h"
#include "vsm/error.h"
#include "vsm/module.h"
#include "vsm/tensormap.h"
#include "vsm/trace.h"

extern "C" {
const char* __asan_default_options();
const char* __ubsan_default_options();
const char* __asan_default_options() { return "abort_on_error=1:hard_rss_limit_mb=3072:detect_leaks=0"; }
const char* __ubsan_default_options() { return "abort_on_error=1:print_stacktrace=1"; }
}

namespace fuzz {
namespace {

using namespace tcgen05;

uint64_t current_case = 0, current_seed = 1;

void name_case() {
  std::fprintf(stderr, "\nfuzz: this was case %llu of seed %llu; run it alone with --seed %llu --only %llu\n",
               static_cast<unsigned long long>(current_case), static_cast<unsigned long long>(current_seed),
               static_cast<unsigned long long>(current_seed), static_cast<unsigned long long>(current_case));
}

void too_long(int) {
  static const char kText[] = "fuzz: a case did not end within 60 seconds\n";
  if (write(2, kText, sizeof kText - 1) > 0) std::abort();
}

void aborted(int) {  // by a sanitizer, an assertion, or the alarm
  name_case();
  std::signal(SIGABRT, SIG_DFL);
  std::abort();
}

struct Counts {
  uint64_t loaded = 0, refused = 0, finished = 0, stopped = 0, plans = 0, plans_run = 0;
};

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The 128 bytes of a tensor map: valid, damaged, or random.
std::vector<uint8_t> tensor_map(Random& r, uint64_t address) {
  vsm::TensorMapArguments a;
  a.address = address;
  a.dtype = r.pick(std::vector<std::string>{"UINT8", "FLOAT16", "FLOAT32", "UINT32", "16U4_ALIGN8B",
                                            "16U6_ALIGN16B", "16U4_ALIGN16B", "INT64", "TFLOAT32_FTZ"});
  size_t rank = r.chance(60) ? 2 : 1 + r.below(5);
  for (size_t i = 0; i < rank; ++i) {
    a.gdim.push_back(r.chance(10) ? static_cast<uint64_t>(r.extreme()) : i ? 8 : 128);
    a.box.push_back(r.chance(10)   ? static_cast<uint32_t>(r.extreme())
                    : i            ? 1 + r.below(8)
                    : r.chance(50) ? 128
                                   : 16);
    a.estride.push_back(r.chance(10) ? static_cast<uint32_t>(r.below(10)) : 1);
    if (i) a.gstride.push_back(r.chance(10) ? static_cast<uint64_t>(r.extreme()) : 128 << i);
  }
  a.interleave = r.chance(15) ? static_cast<int>(r.below(4)) : 0;
  a.swizzle = static_cast<int>(r.chance(50) ? 0 : r.below(9));
  a.oob = static_cast<int>(r.below(2));
  if (r.chance(20)) {
    a.im2col = true;
    a.wide = r.chance(30);
    for (size_t i = 2; i < rank; ++i) {
      a.lower.push_back(static_cast<int>(r.below(5)) - 2);
      a.upper.push_back(static_cast<int>(r.below(5)) - 2);
    }
    a.channels = static_cast<uint32_t>(r.chance(10) ? r.extreme() : 64);
    a.pixels = static_cast<uint32_t>(r.chance(10) ? r.extreme() : 32);
  }
  std::vector<uint8_t> bytes(128);
  try {
    vsm::TensorMap m = vsm::encode_tensor_map(a);
    std::memcpy(bytes.data(), &m, 128);
  } catch (const std::invalid_argument&) {
    if (r.chance(50)) return bytes;
    vsm::TensorMap m;
    m.magic = vsm::TensorMap::kMagic;
    std::memcpy(bytes.data(), &m, 128);
    for (size_t i = 4; i < 128; ++i)
      if (r.chance(40)) bytes[i] = static_cast<uint8_t>(r.next());
  }
  if (r.chance(15)) bytes[4 + r.below(124)] = static_cast<uint8_t>(r.extreme());
  return bytes;
}

vsm::Dim3 dimensions(Random& r, const std::vector<uint32_t>& usual) {
  vsm::Dim3 d{r.pick(usual), 1, 1};
  if (r.chance(10)) d.y = r.pick(usual);
  if (r.chance(5))
    d = {static_cast<uint32_t>(r.extreme()), static_cast<uint32_t>(r.extreme()), r.pick(usual)};
  return d;
}

void launch(vsm::LoadedModule& module, const std::string& name, Random& r, Counts& counts) {
  const vsm::Program& p = module.program(name);
  std::vector<uint8_t> buffer(4096 + r.below(3) * 512);
  for (uint8_t& b : buffer) b = static_cast<uint8_t>(r.next());
  vsm::GlobalMemory memory;
  uint64_t address = memory.add(buffer.data(), buffer.size(), !r.chance(5), "buffer");
  module.add_variables(memory);
  vsm::LaunchConfig c;
  c.block = dimensions(r, {32, 32, 64, 128, 128, 256, 33, 1, 1024});
  c.cluster = r.chance(50) ? vsm::Dim3{} : dimensions(r, {1, 2, 2, 4, 16});
  c.grid = r.chance(10) ? dimensions(r, {1, 2, 3, 8}) : c.cluster;
  if (r.chance(30)) c.grid.x *= 2;
  c.dynamic_shared = r.chance(10) ? static_cast<uint32_t>(r.extreme()) : r.chance(80) ? 16384 : 0;
  c.params.resize(r.chance(5) ? r.below(64) : std::max<size_t>(p.param_bytes, 1));
  for (const vsm::Variable* v : p.entry->params) {
    uint64_t at = p.offsets.at(v);
    std::vector<uint8_t> bytes = v->bytes == 128 ? tensor_map(r, address) : std::vector<uint8_t>(v->bytes);
    if (v->bytes != 128) {
      uint64_t value = v->bytes == 8 && r.chance(90) ? address + (r.chance(10) ? r.below(5000) : 0)
                                                     : static_cast<uint64_t>(r.extreme());
      if (!bytes.empty()) std::memcpy(bytes.data(), &value, std::min<size_t>(8, bytes.size()));
    }
    if (at + bytes.size() <= c.params.size())
      std::copy(bytes.begin(), bytes.end(), c.params.begin() + static_cast<long>(at));
  }
  c.memory = &memory;
  c.schedule = static_cast<vsm::Schedule>(r.below(3));
  c.strict = r.chance(30);
  c.step_limit = r.chance(5) ? 0 : 3000;
  c.threads = r.chance(20) ? 2 : 1;
  vsm::TraceSink sink(r.below(50));
  std::vector<vsm::Writer> writers(buffer.size());
  if (r.chance(20)) c.trace = &sink;
  if (r.chance(10)) c.watched = memory.watch(address, writers.data());
  try {
    vsm::launch(p, std::move(c));
    ++counts.finished;
  } catch (const vsm::ExecutionError& e) {
    ++counts.stopped;
    for (const char* s = e.what(); *s; ++s)
      if (static_cast<unsigned char>(*s) > 0x7e) throw std::logic_error("a message that is not ASCII");
  }
}

void run_text(const std::string& text, Random& r, Counts& counts) {
  try {
    vsm::LoadedModule module(text);
    ++counts.loaded;
    std::vector<std::string> kernels = module.kernels();
    if (!kernels.empty()) launch(module, r.pick(kernels), r, counts);
  } catch (const vsm::LoadError&) {
    ++counts.refused;
  }
}

struct Corpus {
  Programs programs;
  std::vector<Attributes> plans;
  std::vector<std::string> files;
};

void run_case(const Corpus& corpus, uint64_t seed, uint64_t number, bool print, Counts& counts) {
  Random r(seed * 1000003 + number);
  if (!corpus.plans.empty() && r.chance(25)) {
    Attributes a = r.pick(corpus.plans);
    if (r.chance(97)) a = damage(a, r);
    ++counts.plans;
    if (print)
      for (auto& [name, list] : a.lists) {
        std::printf("%s", name.c_str());
        for (int64_t v : list) std::printf(" %lld", static_cast<long long>(v));
        std::printf("\n");
      }
    counts.plans_run += run_plan(a);
    return;
  }
  std::string text;
  if (r.chance(4)) {
    text = corpus.programs.hostile(r);
  } else if (!corpus.files.empty() && r.chance(10)) {
    text = corpus.programs.damage(r.pick(corpus.files), r);
  } else {
    text = corpus.programs.make(r, r.chance(50) ? 3 : 25);
    if (r.chance(60)) text = corpus.programs.damage(std::move(text), r);
  }
  if (print) std::printf("%s\n", text.c_str());
  std::fflush(stdout);
  run_text(text, r, counts);
}

// What would make the rest worthless: statements or plans that are not accepted as they are.
int check(const Corpus& corpus) {
  int failures = 0;
  for (size_t i = 0; i < corpus.programs.statements(); ++i) {
    Random r(i);
    std::string last;
    bool accepted = false;
    for (int k = 0; k < 60 && !accepted; ++k) {
      std::string s = corpus.programs.statement(i, r);
      try {
        vsm::LoadedModule module(corpus.programs.kernel("A: " + s + ";"));
        accepted = true;
      } catch (const vsm::LoadError& e) {
        last = e.what();
      }
    }
    if (accepted) continue;
    ++failures;
    std::fprintf(stderr, "no alternative of statement %zu is accepted: %s\n", i, last.c_str());
  }
  for (const Attributes& a : corpus.plans)
    if (!run_plan(a)) {
      ++failures;
      std::fprintf(stderr, "the plan of %s is refused as it is\n", a.opcode.c_str());
    }
  return failures;
}

int run(int argc, char** argv) {
  std::string folder;
  std::vector<std::string> files;
  uint64_t seed = 1, cases = ~uint64_t{0}, only = 0;
  double seconds = 60;
  for (int i = 1; i < argc; ++i) {
    std::string a = argv[i];
    auto value = [&] { return i + 1 < argc ? argv[++i] : "0"; };
    if (a == "--seed") {
      seed = std::strtoull(value(), nullptr, 10);
    } else if (a == "--cases") {
      cases = std::strtoull(value(), nullptr, 10);
    } else if (a == "--seconds") {
      seconds = std::atof(value());
    } else if (a == "--only") {
      only = std::strtoull(value(), nullptr, 10);
    } else if (folder.empty()) {
      folder = a;
    } else {
      files.push_back(read_file(a));
    }
  }
  Corpus corpus{Programs(read_file(folder + "/kernel.ptx"), read_file(folder + "/statements.txt")),
                read_plans(read_file(folder + "/plans.txt")), files};
  if (!only && check(corpus)) return 1;
  current_seed = seed;
  std::signal(SIGALRM, too_long);
  std::signal(SIGABRT, aborted);
  Counts counts;
  auto start = std::chrono::steady_clock::now();
  uint64_t n = only ? only : 1;
  for (; n <= (only ? only : cases); ++n) {
    current_case = n;
    alarm(60);
    try {
      run_case(corpus, seed, n, only != 0, counts);
    } catch (const vsm::Fault& f) {
      std::fprintf(stderr, "fuzz: a Fault got out: %s\n", f.what.c_str());
      name_case();
      return 1;
    } catch (const std::exception& e) {
      std::fprintf(stderr, "fuzz: unexpected exception: %s\n", e.what());
      name_case();
      return 1;
    }
    if (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds) break;
  }
  alarm(0);
  std::printf(
      "fuzz: seed %llu, %llu cases: %llu texts loaded, %llu refused; %llu launches finished, %llu stopped; "
      "%llu plans, %llu of them run\n",
      static_cast<unsigned long long>(seed), static_cast<unsigned long long>(n),
      static_cast<unsigned long long>(counts.loaded), static_cast<unsigned long long>(counts.refused),
      static_cast<unsigned long long>(counts.finished), static_cast<unsigned long long>(counts.stopped),
      static_cast<unsigned long long>(counts.plans), static_cast<unsigned long long>(counts.plans_run));
  return 0;
}

}  // namespace
}  // namespace fuzz

int main(int argc, char** argv) { return fuzz::run(argc, argv); }
