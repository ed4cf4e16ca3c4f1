// How a warp runs: groups of lanes with their own program counters, merged where they meet.
#include <algorithm>

#include "vsm/barriers.h"
#include "vsm/checker.h"
#include "vsm/machine.h"
#include "vsm/trace.h"

namespace tcgen05::vsm {
namespace {

// Deeper calls first, then the smallest program counter: groups that went different ways meet again at the
// first instruction that both will execute, in the order in which compilers lay code out.
bool goes_first(const Group& a, const Group& b) {
  if (a.calls.size() != b.calls.size()) return a.calls.size() > b.calls.size();
  return a.pc < b.pc;
}

bool can_run(Warp& w, Group& g) {
  if (g.converging) {
    if ((g.mask & g.wanted & w.alive) != (g.wanted & w.alive)) return false;
    g.converging = false;
  }
  if (!g.wait.kind) return true;
  if (!g.timed_out && !g.wait.kind->ready(w, g.wait.a, g.wait.b)) return false;
  g.wait = {};
  return true;
}

// Groups at one place become one.
void merge(Warp& w) {
  for (size_t i = 0; i < w.groups.size(); ++i) {
    for (size_t j = i + 1; j < w.groups.size();) {
      Group &a = w.groups[i], &b = w.groups[j];
      bool idle_a = !a.wait.kind && !a.stage, idle_b = !b.wait.kind && !b.stage;
      if (a.pc == b.pc && idle_a && idle_b && a.calls == b.calls) {
        a.mask |= b.mask;
        a.wanted |= b.wanted;
        a.converging = a.converging && b.converging;
        a.last_run = std::max(a.last_run, b.last_run);
        if (w.current == j) w.current = i;
        if (w.current > j) --w.current;
        w.groups.erase(w.groups.begin() + static_cast<long>(j));
      } else {
        ++j;
      }
    }
  }
}

// Chooses the group that runs next; false if all wait. A group that others have let pass for long goes
// first, so that a spinning group cannot starve the one it waits for.
bool choose(Warp& w, uint64_t now) {
  constexpr uint64_t kPatience = 16;
  merge(w);
  size_t best = w.groups.size();
  bool starving = false;
  for (size_t i = 0; i < w.groups.size(); ++i) {
    Group& g = w.groups[i];
    if (!can_run(w, g)) continue;
    bool starves = now - g.last_run > kPatience;
    if (best == w.groups.size() || (starves && !starving) ||
        (starves == starving && goes_first(g, w.groups[best]))) {
      best = i;
      starving = starves;
    }
  }
  if (best == w.groups.size()) return false;
  w.current = best;
  return true;
}

}  // namespace

void report(Warp& w, const Instr& in, const Fault& fault) {
  const Origin& o = w.program->origins[in.origin];
  const Dim3& id = w.cta->id;
  std::string where =
      "CTA (" + std::to_string(id.x) + ", " + std::to_string(id.y) + ", " + std::to_string(id.z) + ")";
  if (w.cta->cluster->ctas.size() > 1) where += " (rank " + std::to_string(w.cta->rank) + ")";
  where += ", warp " + std::to_string(w.index);
  if (fault.lane >= 0) where += ", thread " + std::to_string(w.thread(fault.lane));
  throw ExecutionError(fault.what + "\n  at line " + std::to_string(o.statement->line) + " of '" +
                       o.function->name + "': " + std::string(o.statement->text.substr(0, 300)) + "\n  in " +
                       where);
}

namespace {

void check_guard(Warp& w, const Instr& in, Mask lanes) {
  try {
    w.checker->check_guard(w, in, lanes);
  } catch (const Fault& fault) {
    report(w, in, fault);
  }
}

Flow run_checked(Warp& w, const Instr& in, Mask m) {
  w.checker->before(w, in, m);
  Flow flow = in.fn(w, in, m);
  w.checker->after(w);
  return flow;
}

}  // namespace

void exit_lanes(Warp& w, Mask lanes) {
  Group& g = w.group();
  uint32_t n = static_cast<uint32_t>(count_lanes(lanes));
  w.alive &= ~lanes;
  g.mask &= ~lanes;
  w.cta->live_threads -= n;
  w.cta->cluster->live_threads -= n;
  for_lanes(lanes, [&](int i) {  // its arrival no longer counts, since it no longer counts itself
    uint32_t phase = w.lanes[static_cast<size_t>(i)].cluster_phase;
    if (phase == w.cta->cluster->barrier_generation + 1) --w.cta->cluster->barrier_arrived;
  });
  ++w.cta->cluster->progress;
  if (!g.mask) {
    w.groups.erase(w.groups.begin() + static_cast<long>(w.current));
    w.current = 0;
  } else {
    ++g.pc;
  }
  barriers_after_exit(*w.cta);
}

bool run_warp(Warp& w, uint32_t slice) {
  Cluster& cluster = *w.cta->cluster;
  if (!choose(w, cluster.round)) return false;
  const Instr* code = w.program->code.data();
  uint64_t* executed = cluster.executed.data();
  uint64_t* lanes = cluster.lanes.data();
  const Checker* checker = w.checker;
  uint32_t done = 0;
  Trace* trace = cluster.trace.get();
  while (done < slice) {
    Group& g = w.groups[w.current];
    const Instr& in = code[g.pc];
    Mask m = g.mask;
    if (in.predicate != kNoRef) {
      if (checker) check_guard(w, in, m);
      Mask p = w.predicate(in.predicate);
      m &= in.negated ? ~p : p;
      if (!m) {
        ++g.pc;
        ++done;
        if (w.groups.size() > 1 && !choose(w, cluster.round)) break;
        continue;
      }
    }
    if (in.aligned && m != w.alive) {
      if (m != g.mask)
        report(w, in,
               {"instruction with .aligned is executed by " + std::to_string(count_lanes(m)) + " of " +
                    std::to_string(count_lanes(w.alive)) + " threads of the warp",
                first_lane(m)});
      g.converging = true;
      g.wanted = w.alive;
      if (!choose(w, cluster.round)) break;
      continue;
    }
    ++done;
    ++executed[g.pc];
    lanes[g.pc] += static_cast<uint64_t>(m == ~Mask{0} ? 32 : count_lanes(m));
    g.last_run = cluster.round;
    Flow flow;
    if (trace) trace->begin(w, g.pc, m, done);
    try {
      flow = checker ? run_checked(w, in, m) : in.fn(w, in, m);
    } catch (const Fault& fault) {
      report(w, in, fault);
    }
    if (trace) trace->finish(flow);
    if (flow == Flow::next) {
      Group& now = w.groups[w.current];
      ++now.pc;
      now.timed_out = false;
      if (w.groups.size() == 1) continue;
    } else if (flow == Flow::jump) {
      if (w.groups.size() == 1) continue;
    } else if (flow == Flow::wait || flow == Flow::wait_next) {
      Group& now = w.groups[w.current];
      now.timed_out = false;
      if (flow == Flow::wait_next) ++now.pc;
    } else if (flow == Flow::exit) {
      exit_lanes(w, m);
      if (w.groups.empty()) break;
    }
    if (!choose(w, cluster.round)) break;
  }
  w.instructions += done;
  return true;
}

}  // namespace tcgen05::vsm
