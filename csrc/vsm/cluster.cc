// One cluster: its start, its scheduler, its asynchronous work. And a launch: clusters over host threads.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "vsm/checker.h"
#include "vsm/float_environment.h"
#include "vsm/machine.h"
#include "vsm/special.h"
#include "vsm/trace.h"

namespace tcgen05::vsm {
namespace {

constexpr uint64_t kMaxClusterBytes = uint64_t{1} << 32;
constexpr uint64_t kMaxResidentBytes = uint64_t{1} << 30;  // of clusters that have begun and wait
constexpr uint64_t kMaxResidentCtas = 148 * 32;            // a chip's: no kernel may count on more
constexpr uint32_t kSlice = 512;                           // instructions of a warp before the next one runs
constexpr uint64_t kFairDelay = 3;                         // rounds
constexpr size_t kMaxQueue = 1024;     // works in flight of one queue; then the oldest takes effect
constexpr uint64_t kLateDelay = 5000;  // rounds; usually nothing can run long before
constexpr uint64_t kPatience = 8;      // wakes of spinning warps without any event before it counts as stuck

template <class S>
void fill_preset(Warp& w, const Preset& p) {
  S* slot = w.out<S>(p.slot);
  if (p.special >= 0) {
    for (int lane = 0; lane < 32; ++lane) slot[lane] = static_cast<S>(special(p.special).value(w, lane));
    return;
  }
  uint64_t v = p.value;
  if (p.variable->space == Space::shared)
    v += w.shared_base + (p.variable->external ? w.run->dynamic_base : kReservedShared);
  std::fill_n(slot, 32, static_cast<S>(v));
}

void fill_presets(Warp& w) {
  for (const Preset& p : w.program->presets)
    p.wide ? fill_preset<uint64_t>(w, p) : fill_preset<uint32_t>(w, p);
}

void start_warp(Cta& cta, uint32_t index, Run& run) {
  auto warp = std::make_unique<Warp>();
  Warp& w = *warp;
  w.cta = &cta;
  w.run = &run;
  w.program = run.program;
  w.index = index;
  w.shared_base = cta.rank << kRankShift;
  uint32_t threads = std::min<uint32_t>(32, cta.threads - index * 32);
  w.full = w.alive = threads == 32 ? ~Mask{0} : (Mask{1} << threads) - 1;
  w.register_file.assign(run.program->register_bytes + 64, 0);
  w.registers = w.register_file.data() + (64 - reinterpret_cast<uintptr_t>(w.register_file.data()) % 64);
  w.base[0] = w.registers;
  w.base[1] = run.program->constants.data();
  w.local.assign(size_t{32} * run.program->local_bytes, 0);
  Group g;
  g.mask = w.full;
  w.groups.push_back(g);
  fill_presets(w);
  cta.warps.push_back(std::move(warp));
}

Dim3 position(uint64_t index, const Dim3& size) {
  return {static_cast<uint32_t>(index % size.x), static_cast<uint32_t>(index / size.x % size.y),
          static_cast<uint32_t>(index / (uint64_t{size.x} * size.y))};
}

}  // namespace

uint32_t* Cta::tmem_data() {
  if (tmem.empty()) tmem.assign(128 * 512, 0);
  return tmem.data();
}

Cta& Cta::peer() { return cluster->ctas.size() > 1 ? *cluster->ctas[rank ^ 1] : *this; }

Cluster::~Cluster() = default;

Cluster::Cluster(Run& r, uint64_t i) : run(&r), index(i), id(position(i, r.clusters)) {
  const LaunchConfig& c = r.config;
  uint32_t n = static_cast<uint32_t>(c.cluster.count());
  queues.resize(3 * n);
  if (c.trace || c.watched) trace = std::make_unique<Trace>(*r.program, c.trace);
  executed.assign(r.program->code.size(), 0);
  lanes.assign(r.program->code.size(), 0);
  for (uint32_t rank = 0; rank < n; ++rank) {
    auto cta = std::make_unique<Cta>();
    cta->cluster = this;
    cta->rank = rank;
    Dim3 inner = position(rank, c.cluster);
    cta->id = {id.x * c.cluster.x + inner.x, id.y * c.cluster.y + inner.y, id.z * c.cluster.z + inner.z};
    cta->shared.assign(r.shared_bytes, 0);
    cta->threads = cta->live_threads = static_cast<uint32_t>(c.block.count());
    live_threads += cta->threads;
    ctas.push_back(std::move(cta));
  }
  for (auto& cta : ctas)
    for (uint32_t w = 0; w * 32 < cta->threads; ++w) start_warp(*cta, w, r);
  if (c.strict) checker = std::make_shared<Checker>(*this);
}

Cta& Cluster::cta(uint32_t rank, int lane) {
  if (rank >= ctas.size())
    throw Fault{
        "CTA rank " + std::to_string(rank) + " does not exist in a cluster of " + std::to_string(ctas.size()),
        lane};
  return *ctas[rank];
}

void Cluster::start(size_t queue, std::function<void()> effect) {
  ++progress;
  if (queues[queue].size() >= kMaxQueue) fire(queues[queue]);
  uint64_t delay = run->config.schedule == Schedule::late ? kLateDelay : kFairDelay;
  queues[queue].push_back({round + delay, trace ? trace->started() : 0, std::move(effect)});
  if (run->config.schedule == Schedule::eager && queues[queue].size() == 1) fire(queues[queue]);
}

void Cluster::fire(AsyncQueue& queue) {
  AsyncOp op = std::move(queue.front());
  queue.pop_front();
  if (trace) trace->effect_begins(op.event);
  op.effect();
  if (trace) trace->effect_ends();
  ++asynchronous;
  ++progress;
}

bool Cluster::fire_due() {
  bool fired = false;
  for (AsyncQueue& q : queues) {
    while (!q.empty() && q.front().due <= round) {
      fire(q);
      fired = true;
    }
  }
  return fired;
}

bool Cluster::fire_next() {
  AsyncQueue* oldest = nullptr;
  for (AsyncQueue& q : queues)
    if (!q.empty() && (!oldest || q.front().due < oldest->front().due)) oldest = &q;
  if (!oldest) return false;
  fire(*oldest);
  return true;
}

bool Cluster::wake_spinners() {
  if (progress != last_progress) {
    idle_wakes = 0;
    last_progress = progress;
  }
  if (++idle_wakes > kPatience) return false;
  bool woken = false;
  for (auto& cta : ctas)
    for (auto& w : cta->warps)
      for (Group& g : w->groups)
        if (g.wait.kind && g.wait.kind->spin) woken = g.timed_out = true;
  return woken;
}

// Threads may exit before their stores have landed.
Cluster::State Cluster::drain() {
  while (fire_next()) {
  }
  return State::finished;
}

Cluster::State Cluster::step(uint64_t rounds) {
  for (uint64_t r = 0; r < rounds; ++r) {
    if (!live_threads) return drain();
    ++round;
    bool ran = false;
    uint64_t before = 0, after = 0;
    for (auto& cta : ctas) {
      for (auto& w : cta->warps) {
        if (w->groups.empty()) continue;
        before += w->instructions;
        if (run_warp(*w, kSlice)) ran = true;
        after += w->instructions;
      }
    }
    if (trace) trace->next_round();
    if ((run->steps += after - before) > run->config.step_limit)
      throw ExecutionError("step limit of " + std::to_string(run->config.step_limit) +
                           " warp instructions is exceeded\n" + waiting_report());
    if (run->stop.load(std::memory_order_relaxed)) return State::yielded;
    if (fire_due() || ran) continue;
    if (!live_threads) return drain();
    if (fire_next() || wake_spinners()) continue;
    idle_wakes = 0;
    return State::stuck;
  }
  return live_threads ? State::yielded : drain();
}

std::string Cluster::waiting_report() {
  std::string out;
  int rows = 0;
  for (auto& cta : ctas) {
    for (auto& w : cta->warps) {
      for (Group& g : w->groups) {
        if (++rows > 40) return out + "  ...\n";
        const Origin& o = run->program->origins[run->program->code[g.pc].origin];
        const Dim3& c = cta->id;
        out += "  CTA (" + std::to_string(c.x) + ", " + std::to_string(c.y) + ", " + std::to_string(c.z) +
               ") warp " + std::to_string(w->index) + " lanes " + hex(g.mask) + ": ";
        if (g.converging) {
          out += "waits for lanes " + hex(g.wanted & w->alive & ~g.mask) + " of its warp";
        } else if (g.wait.kind) {
          out += std::string("waits for ") + g.wait.kind->what;
          if (g.wait.a) out += " " + hex(g.wait.a);
        } else {
          out += "runs";
        }
        out += "; line " + std::to_string(o.statement->line) + ": " +
               std::string(o.statement->text.substr(0, 120)) + "\n";
      }
    }
  }
  return out;
}

// ---- launch ----

namespace {

void check_config(const Program& p, LaunchConfig& c, Run& run) {
  auto fail = [&](const std::string& what) {
    throw ExecutionError("launch of '" + p.entry->name + "': " + what);
  };
  auto spell = [](const Dim3& d) {
    return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
  };
  const uint32_t* rc = p.entry->required_cluster;
  if (rc[0] && c.cluster.count() == 1) c.cluster = {rc[0], std::max(1u, rc[1]), std::max(1u, rc[2])};
  for (int i = 0; i < 3; ++i)
    if (!c.grid[i] || !c.block[i] || !c.cluster[i]) fail("grid, block and cluster must not have a zero");
  for (int i = 0; i < 3; ++i)  // each, so that the products below cannot overflow
    if (c.block[i] > 1024 || c.cluster[i] > 1024)
      fail("block " + spell(c.block) + " or cluster " + spell(c.cluster) + " has an extent above 1024");
  if (c.block.count() > 1024) fail("block " + spell(c.block) + " has more than 1024 threads");
  if (c.grid.y > 65535 || c.grid.z > 65535 || c.grid.x > 0x7fffffff)
    fail("grid " + spell(c.grid) + " exceeds (2^31-1, 65535, 65535)");
  const uint32_t* rt = p.entry->required_threads;
  if (rt[0] && (c.block.x != rt[0] || c.block.y != std::max(1u, rt[1]) || c.block.z != std::max(1u, rt[2])))
    fail("block is " + spell(c.block) + ", the kernel has .reqntid " + spell({rt[0], rt[1], rt[2]}));
  const uint32_t* mt = p.entry->max_threads;
  if (mt[0] && c.block.count() > uint64_t{mt[0]} * mt[1] * mt[2])
    fail("block " + spell(c.block) + " exceeds the kernel's .maxntid " + spell({mt[0], mt[1], mt[2]}));
  if (c.cluster.count() > 16) fail("cluster " + spell(c.cluster) + " has more than 16 CTAs");
  for (int i = 0; i < 3; ++i)
    if (c.grid[i] % c.cluster[i])
      fail("grid " + spell(c.grid) + " is no multiple of cluster " + spell(c.cluster));
  if (c.params.size() < p.param_bytes)
    fail("parameters have " + std::to_string(c.params.size()) + " bytes, the kernel takes " +
         std::to_string(p.param_bytes));
  run.dynamic_base = (kReservedShared + p.static_shared + 1023) / 1024 * 1024;
  if (!c.dynamic_shared) run.dynamic_base = kReservedShared + p.static_shared;
  uint64_t total = uint64_t{run.dynamic_base} + c.dynamic_shared;
  if (total > kMaxShared)
    fail("needs " + std::to_string(total - kReservedShared) + " bytes of shared memory, a CTA has " +
         std::to_string(kMaxShared - kReservedShared));
  run.shared_bytes = static_cast<uint32_t>(total);
  uint64_t warps = (c.block.count() + 31) / 32,
           warp = uint64_t{p.register_bytes} + uint64_t{32} * p.local_bytes + sizeof(Warp);
  // Tensor memory is allocated when it is first used, and so counted where tcgen05 is used.
  run.cluster_bytes =
      c.cluster.count() * (warps * warp + total + (p.cta_group ? 128 * 512 * 4 : 0)) + p.code.size() * 16;
  if (run.cluster_bytes > kMaxClusterBytes)
    fail("a cluster needs " + std::to_string(run.cluster_bytes) +
         " bytes of the host for its registers and " +
         "local memory, allowed: " + std::to_string(kMaxClusterBytes));
}

// Clusters that have begun or may begin. A cluster that is stuck waits for others (through global memory),
// so it goes to the back and the next one begins.
class Launcher {
 public:
  explicit Launcher(Run& run) : run_(run), counts_(run.program->code.size()), lane_counts_(counts_.size()) {}

  LaunchResult run() {
    unsigned n = std::max(
        1u, std::min<unsigned>(run_.config.watched ? 1 : run_.config.threads,
                               static_cast<unsigned>(std::min<uint64_t>(64, run_.clusters.count()))));
    std::vector<std::thread> helpers;
    for (unsigned i = 1; i < n; ++i) helpers.emplace_back([this] { work(false); });
    work(true);
    for (auto& h : helpers) h.join();
    if (error_) std::rethrow_exception(error_);
    return result();
  }

 private:
  static constexpr uint64_t kRounds = 256;

  void poll() {
    if (run_.config.poll) run_.config.poll(finished_.load(), run_.clusters.count(), run_.steps.load());
  }

  void work(bool main) {
    FloatEnvironment environment;
    try {
      while (true) {
        if (main) poll();
        std::unique_ptr<Cluster> cluster = next(main);
        if (!cluster) return;
        Cluster::State state = cluster->step(kRounds);
        give_back(std::move(cluster), state);
      }
    } catch (...) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!error_) error_ = std::current_exception();
      run_.stop = true;
      changed_.notify_all();
    }
  }

  // A cluster to run, or null when the launch is over.
  std::unique_ptr<Cluster> next(bool main) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      if (run_.stop) return nullptr;
      // Clusters that have begun go first, unless one spins: it may wait for one that has not begun.
      if (uint64_t i = run_.next_cluster.load(); (ready_.empty() || spinning_) && may_begin() &&
                                                 i < run_.clusters.count() &&
                                                 run_.next_cluster.compare_exchange_strong(i, i + 1)) {
        ++running_;
        spinning_ = false;
        lock.unlock();
        return std::make_unique<Cluster>(run_, i);
      }
      if (!ready_.empty()) {
        auto c = std::move(ready_.front());
        ready_.pop_front();
        ++running_;
        return c;
      }
      if (!running_) {
        if (stuck_.empty()) return nullptr;
        throw ExecutionError("deadlock: nothing can run any more\n" + stuck_.front()->waiting_report());
      }
      if (main && run_.config.poll) {  // the others may be busy for long
        changed_.wait_for(lock, std::chrono::milliseconds(100));
        lock.unlock();
        poll();
        lock.lock();
      } else {
        changed_.wait(lock);
      }
    }
  }

  // Waiting clusters keep their memory, so their number has an end.
  bool may_begin() const {
    uint64_t n = ready_.size() + stuck_.size() + running_;
    return n == 0 ||
           (n * run_.config.cluster.count() < kMaxResidentCtas && n * run_.cluster_bytes < kMaxResidentBytes);
  }

  void give_back(std::unique_ptr<Cluster> c, Cluster::State state) {
    std::lock_guard<std::mutex> lock(mutex_);
    --running_;
    bool progress = c->progress != c->turn_progress;
    c->turn_progress = c->progress;
    if (state == Cluster::State::finished) {
      if (c->checker) c->checker->finish();
      for (size_t i = 0; i < counts_.size(); ++i) {
        counts_[i] += c->executed[i];
        lane_counts_[i] += c->lanes[i];
      }
      macs_ += c->macs;
      asynchronous_ += c->asynchronous;
      traffic_.add(c->traffic);
      ++finished_;
      c.reset();
      release_stuck();
    } else if (state == Cluster::State::yielded) {
      ready_.push_back(std::move(c));
      if (progress) release_stuck();
      spinning_ = spinning_ || !progress;
    } else {
      stuck_.push_back(std::move(c));
    }
    changed_.notify_all();
  }

  void release_stuck() {
    for (auto& c : stuck_) ready_.push_back(std::move(c));
    stuck_.clear();
  }

  LaunchResult result() {
    LaunchResult r;
    std::vector<uint64_t> per_opcode(run_.program->opcodes.size(), 0);
    for (size_t i = 0; i < counts_.size(); ++i) {
      r.instructions += counts_[i];
      r.thread_instructions += lane_counts_[i];
      per_opcode[run_.program->origins[run_.program->code[i].origin].opcode] += lane_counts_[i];
    }
    for (size_t i = 0; i < per_opcode.size(); ++i)
      if (per_opcode[i]) r.opcodes.emplace_back(run_.program->opcodes[i], per_opcode[i]);
    r.macs = macs_;
    r.asynchronous = asynchronous_;
    r.traffic = traffic_;
    return r;
  }

  Run& run_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Cluster>> ready_, stuck_;
  unsigned running_ = 0;
  bool spinning_ = false;  // a cluster's turn ended without any event
  std::exception_ptr error_;
  std::vector<uint64_t> counts_, lane_counts_;
  uint64_t macs_ = 0, asynchronous_ = 0;
  Traffic traffic_;
  std::atomic<uint64_t> finished_{0};
};

}  // namespace

LaunchResult launch(const Program& program, LaunchConfig config) {
  Run run;
  run.program = &program;
  check_config(program, config, run);
  run.config = std::move(config);
  if (run.config.strict) run.config.schedule = Schedule::late;
  const LaunchConfig& c = run.config;
  run.clusters = {c.grid.x / c.cluster.x, c.grid.y / c.cluster.y, c.grid.z / c.cluster.z};
  return Launcher(run).run();
}

}  // namespace tcgen05::vsm
