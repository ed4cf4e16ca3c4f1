#include "vsm/trace.h"

#include <algorithm>
#include <string_view>

#include "vsm/mbarrier.h"

namespace tcgen05::vsm {
namespace {

// Opcodes whose events make up a trace: tensor memory, barriers, asynchronous copies and what orders them.
bool is_traced(std::string_view opcode) {
  for (std::string_view root :
       {"tcgen05.", "mbarrier.", "bar.", "barrier.", "cp.", "st.async", "red.async", "fence.", "tensormap.",
        "clusterlaunchcontrol.", "griddepcontrol.", "setmaxnreg."})
    if (opcode.substr(0, root.size()) == root) return true;
  return false;
}

}  // namespace

void TraceSink::add(std::vector<Event> events) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Event& e : events) {
    if (events_.size() >= limit_) {
      truncated_ = true;
      return;
    }
    events_.push_back(std::move(e));
  }
}

Trace::Trace(const Program& program, TraceSink* sink) : sink_(sink) {
  for (const Instr& in : program.code)
    wanted_.push_back(sink && is_traced(program.opcodes[program.origins[in.origin].opcode]));
}

Trace::~Trace() {
  if (sink_) sink_->add(std::move(events_));
}

void Trace::begin(Warp& w, uint32_t pc, Mask m, uint32_t done) {
  now_ = {&w, w.cta->id, w.index, pc, m, {}, base_ + done};
  latest_ = std::max(latest_, now_.now);
  for (size_t i = 0; i < waits_.size(); ++i) {
    const Waiting x = waits_[i];
    if (!x.passed || x.warp != &w || x.pc != pc) continue;
    if (x.event != kNever) events_[x.event].end = now_.now;
    waits_.erase(waits_.begin() + static_cast<long>(i--));
  }
}

size_t Trace::add(Event::Kind kind, uint64_t start) {
  if (events_.size() >= sink_->limit()) {
    sink_->cut();
    return kNever;
  }
  Event e;
  e.kind = kind;
  e.start = start;
  e.cta = now_.cta;
  e.warp = now_.warp_index;
  e.pc = now_.pc;
  e.lanes = now_.lanes;
  e.notes = now_.notes;
  events_.push_back(std::move(e));
  return events_.size() - 1;
}

void Trace::finish(Flow flow) {
  if (!wanted_[now_.pc]) return;
  // An instruction that waits is tried again, or, with wait_next, over when the next one begins.
  auto found = std::find_if(waits_.begin(), waits_.end(),
                            [&](const Waiting& x) { return x.warp == now_.warp && x.pc == now_.pc; });
  if (flow == Flow::wait || flow == Flow::wait_next) {
    if (found == waits_.end()) {
      const size_t event = add(Event::Kind::instruction, now_.now);
      waits_.push_back(
          {now_.warp, flow == Flow::wait ? now_.pc : now_.pc + 1, flow == Flow::wait_next, event});
    }
    return;
  }
  size_t event = found == waits_.end() ? add(Event::Kind::instruction, now_.now) : found->event;
  if (found != waits_.end()) waits_.erase(found);
  if (event == kNever) return;
  events_[event].end = now_.now;
  if (!now_.notes.empty()) events_[event].notes = now_.notes;
}

size_t Trace::started() {
  works_.push_back({now_, sink_ ? add(Event::Kind::effect, now_.now) : kNever});
  return works_.size() - 1;
}

void Trace::effect_begins(size_t work) {
  interrupted_ = std::move(now_);
  now_ = std::move(works_[work].issuer);
  now_.notes.clear();
  now_.now = latest_;
  if (works_[work].event != kNever) events_[works_[work].event].end = latest_;
}

void Trace::mbarrier(const Cta& owner, uint32_t address, const MbarrierState& s, bool completes) {
  if (!sink_) return;
  size_t event = add(Event::Kind::mbarrier, now_.now);
  if (event == kNever) return;
  Event& e = events_[event];
  e.end = now_.now;
  e.owner = owner.id;
  e.notes = {{"address", address & kSharedOffsetMask},
             {"completed", completes},
             {"phase", s.phase},
             {"pending", s.pending},
             {"tx", static_cast<uint64_t>(int64_t{s.tx})}};
}

void Trace::wrote(const Region& region, uint64_t offset, uint32_t bytes, uint32_t thread) {
  std::fill_n(region.writers + offset, bytes, Writer{now_.pc + 1, now_.cta, thread});
}

}  // namespace tcgen05::vsm
