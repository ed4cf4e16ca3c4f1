// Control flow (PTX ISA 9.7.14): branches, calls, return, exit, trap.
#include <iterator>

#include "vsm/ops/common.h"
#include "vsm/ops/families.h"

namespace tcgen05::vsm {
namespace {

using Kind = Operand::Kind;

// Lanes of `m` go to `pc`, the rest of the group goes on behind this instruction.
void branch_to(Warp& w, Mask m, uint32_t pc) {
  Group& g = w.group();
  if (m == g.mask) {
    g.pc = pc;
    return;
  }
  Group other = g;
  other.mask = m;
  other.pc = pc;
  g.mask &= ~m;
  ++g.pc;
  w.groups.push_back(std::move(other));
}

Flow bra(Warp& w, const Instr& in, Mask m) {
  branch_to(w, m, in.target);
  return Flow::jump;
}

void decode_bra(Decoder& d) {
  d.take("uni");
  d.need_operands(1);
  d.set_target(d.operand(0));
  d.in.fn = bra;
}

Flow brx(Warp& w, const Instr& in, Mask m) {
  const auto& table = *static_cast<const std::vector<uint32_t>*>(in.aux);
  auto* index = w.in<uint32_t>(in.src[0]);
  while (m) {
    uint32_t i = index[first_lane(m)];
    if (i >= table.size())
      throw Fault{
          "branch index " + std::to_string(i) + " exceeds the " + std::to_string(table.size()) + " targets",
          first_lane(m)};
    Mask same = 0;
    for_lanes(m, [&](int lane) { same |= static_cast<Mask>(index[lane] == i) << lane; });
    m &= ~same;
    if (m || same != w.group().mask) {
      Group other = w.group();
      other.mask = same;
      other.pc = table[i];
      w.group().mask &= ~same;
      w.groups.push_back(std::move(other));
    } else {
      w.group().pc = table[i];
      return Flow::jump;
    }
  }
  ++w.group().pc;  // lanes that the predicate excluded
  return Flow::jump;
}

void decode_brx(Decoder& d) {
  d.take("uni");
  d.need_operands(2);
  d.in.src[0] = d.src(d.operand(0), Type::u32);
  d.in.aux = d.own(std::const_pointer_cast<std::vector<uint32_t>>(d.jump_table(d.operand(1))));
  d.in.fn = brx;
}

struct Copy {
  uint64_t from, to, bytes;  // in local memory
  uint64_t constant;
  bool is_constant;
  Ref ref;
  bool wide;
  bool is_register;
};

struct Call {
  std::vector<Copy> arguments;
  std::vector<Copy> results;
};

void copy_values(Warp& w, const std::vector<Copy>& copies, Mask m) {
  uint64_t stride = w.program->local_bytes;
  for (const Copy& c : copies) {
    for_lanes(m, [&](int lane) {
      uint8_t* local = w.local.data() + stride * static_cast<uint64_t>(lane);
      if (c.is_constant) {
        std::memcpy(local + c.to, &c.constant, std::min<uint64_t>(8, c.bytes));
      } else if (c.is_register) {
        uint64_t v = w.read(c.ref, c.wide, lane);
        std::memcpy(local + c.to, &v, std::min<uint64_t>(8, c.bytes));
      } else {
        std::memcpy(local + c.to, local + c.from, c.bytes);
      }
    });
  }
}

constexpr size_t kMaxCalls = 256;

Flow call(Warp& w, const Instr& in, Mask m) {
  Group& g = w.group();
  if (g.calls.size() >= kMaxCalls) throw Fault{"more than 256 nested calls", first_lane(m)};
  copy_values(w, static_cast<const Call*>(in.aux)->arguments, m);
  uint32_t back = g.pc + 1;
  if (m == g.mask) {
    g.calls.push_back(back);
    g.pc = in.target;
    return Flow::jump;
  }
  Group other = g;
  other.mask = m;
  other.pc = in.target;
  other.calls.push_back(back);
  g.mask &= ~m;
  ++g.pc;
  w.groups.push_back(std::move(other));
  return Flow::jump;
}

Flow call_results(Warp& w, const Instr& in, Mask m) {
  copy_values(w, static_cast<const Call*>(in.aux)->results, m);
  return Flow::next;
}

// vprintf answers 0 characters; malloc answers null.
Flow call_zero(Warp& w, const Instr& in, Mask m) {
  copy_values(w, static_cast<const Call*>(in.aux)->results, m);
  return Flow::next;
}

Flow call_assert(Warp&, const Instr&, Mask m) {
  throw Fault{"the kernel's assertion failed (__assertfail)", first_lane(m)};
}

Copy local_copy(Decoder& d, const Operand& x, const Variable& formal, bool result) {
  Copy c{};
  c.bytes = formal.bytes;
  uint64_t formal_offset = d.offset_of(formal);
  if (x.kind == Kind::symbol && x.variable->space == Space::local) {
    if (x.variable->bytes < c.bytes)
      d.fail("argument '" + x.variable->name + "' is smaller than parameter '" + formal.name + "'");
    c.from = result ? formal_offset : d.offset_of(*x.variable);
    c.to = result ? d.offset_of(*x.variable) : formal_offset;
  } else if (!result && x.kind == Kind::integer) {
    c.is_constant = true;
    c.constant = x.value;
    c.to = formal_offset;
  } else if (!result && x.kind == Kind::reg) {
    c.is_register = true;
    c.ref = d.src_any(x, Type::b64);
    c.wide = d.wide(x);
    c.to = formal_offset;
  } else {
    d.fail("arguments of call must be .param variables, registers or constants");
  }
  return c;
}

void decode_call(Decoder& d) {
  d.take("uni");
  size_t at = 0;
  const Operand* results = nullptr;
  if (d.operand(0).kind == Kind::group) results = &d.operand(at++);
  const Operand& callee = d.operand(at++);
  const Operand* arguments =
      at < d.operands() && d.operand(at).kind == Kind::group ? &d.operand(at++) : nullptr;
  if (callee.kind != Kind::function) d.fail("only direct calls are supported");
  const Function& f = *callee.function;
  auto c = std::make_shared<Call>();
  size_t given = arguments ? arguments->list.size() : 0, wanted = f.params.size();
  if (given != wanted)
    d.fail("call of '" + f.name + "' has " + std::to_string(given) + " arguments, it takes " +
           std::to_string(wanted));
  size_t got = results ? results->list.size() : 0;
  if (got != f.results.size())
    d.fail("call of '" + f.name + "' takes " + std::to_string(got) + " results, it returns " +
           std::to_string(f.results.size()));
  if (!f.defined) {
    bool zero = f.name == "vprintf" || f.name == "malloc";
    if (!zero && f.name != "free" && f.name != "__assertfail")
      d.fail("call of the external function '" + f.name + "'");
    for (size_t i = 0; i < got; ++i) {
      const Operand& x = results->list[i];
      if (x.kind != Kind::symbol || x.variable->space != Space::local)
        d.fail("results of call must be .param variables");
      Copy r{};
      r.is_constant = true;
      r.to = d.offset_of(*x.variable);
      r.bytes = x.variable->bytes;
      c->results.push_back(r);
    }
    d.own(c);
    d.in.fn = f.name == "__assertfail" ? call_assert : call_zero;
    return;
  }
  for (size_t i = 0; i < given; ++i)
    c->arguments.push_back(local_copy(d, arguments->list[i], *f.params[i], false));
  for (size_t i = 0; i < got; ++i) c->results.push_back(local_copy(d, results->list[i], *f.results[i], true));
  d.own(c);
  if (!c->results.empty()) {  // the results are copied by an instruction behind the call
    Instr after;
    after.fn = call_results;
    after.aux = c.get();
    after.predicate = d.in.predicate;
    after.negated = d.in.negated;
    d.emit_after(after);
  }
  d.in.fn = call;
  d.set_call(f);
}

Flow ret(Warp& w, const Instr&, Mask m) {
  Group& g = w.group();
  if (g.calls.empty()) return Flow::exit;
  uint32_t pc = g.calls.back();
  if (m == g.mask) {
    g.calls.pop_back();
    g.pc = pc;
    return Flow::jump;
  }
  branch_to(w, m, pc);
  w.groups.back().calls.pop_back();
  return Flow::jump;
}

void decode_ret(Decoder& d) {
  d.take("uni");
  d.need_operands(0);
  d.in.fn = ret;
}

Flow exit_threads(Warp&, const Instr&, Mask) { return Flow::exit; }

void decode_exit(Decoder& d) {
  d.need_operands(0);
  d.in.fn = exit_threads;
}

Flow trap(Warp&, const Instr&, Mask m) { throw Fault{"the kernel executed trap", first_lane(m)}; }

void decode_trap(Decoder& d) {
  d.need_operands(0);
  d.in.fn = trap;
}

Flow nothing(Warp&, const Instr&, Mask) { return Flow::next; }

void decode_nothing(Decoder& d) {
  while (!d.take_next().empty()) {
  }
  d.in.fn = nothing;
}

constexpr WaitKind kSleep = {"nanosleep", [](Warp&, uint64_t, uint64_t) { return true; }, false};

// Gives way to the other warps.
Flow nanosleep(Warp& w, const Instr&, Mask) { return w.wait(kSleep, 0, 0, Flow::wait_next); }

void decode_nanosleep(Decoder& d) {
  d.type_of({Type::u32});
  d.need_operands(1);
  d.src(d.operand(0), Type::u32);
  d.in.fn = nanosleep;
}

constexpr Entry kEntries[] = {
    {"bra", decode_bra, "{.uni}"},
    {"brx.idx", decode_brx, "{.uni}"},
    {"call", decode_call,
     "{.uni} of functions in the module; vprintf and malloc answer 0, __assertfail is an error"},
    {"ret", decode_ret, "{.uni}"},
    {"exit", decode_exit, ""},
    {"trap", decode_trap, "an error"},
    {"brkpt", decode_nothing, "without effect"},
    {"pmevent", decode_nothing, "without effect"},
    {"nanosleep", decode_nanosleep, "gives way"},
};

}  // namespace

Family control_family() { return {"control flow", kEntries, std::size(kEntries)}; }

}  // namespace tcgen05::vsm
