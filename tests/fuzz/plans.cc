#include "plans.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "model/run_plan.h"
#include "plan/plan.h"

namespace fuzz {

std::vector<Attributes> read_plans(const std::string& text) {
  std::vector<Attributes> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name;
    if (!(words >> name) || name[0] == '#') continue;
    if (name == "opcode") {
      out.emplace_back();
      words >> out.back().opcode;
      continue;
    }
    std::vector<int64_t> values;
    for (int64_t v; words >> v;) values.push_back(v);
    out.back().lists.emplace_back(name, std::move(values));
  }
  return out;
}

Attributes damage(Attributes a, Random& r) {
  for (uint64_t n = 1 + r.below(3); n; --n) {
    std::vector<int64_t>& v = a.lists[r.below(a.lists.size())].second;
    size_t i = r.below(v.size());
    switch (r.below(8)) {
      case 0:
      case 1:
        if (!v.empty()) v[i] = r.extreme();
        break;
      case 2:
      case 3:
        if (!v.empty()) v[i] = static_cast<int64_t>(static_cast<uint64_t>(v[i]) + r.below(5) - 2);
        break;
      case 4:
        if (!v.empty()) v.erase(v.begin() + static_cast<long>(i));
        break;
      case 5:
        v.insert(v.begin() + static_cast<long>(i),
                 v.empty() || r.chance(50) ? r.extreme() : v[r.below(v.size())]);
        break;
      case 6:
        std::swap(v, a.lists[r.below(a.lists.size())].second);
        break;
      default:
        if (!v.empty()) v[i] = v[r.below(v.size())];
    }
  }
  if (r.chance(3)) a.opcode = a.opcode.substr(0, r.below(a.opcode.size()));
  return a;
}

bool run_plan(const Attributes& a) {
  tcgen05::PlanAttributes p;
  p.opcode = a.opcode;
  auto list = [&](const std::string& name) -> const std::vector<int64_t>& {
    static const std::vector<int64_t> kNone;
    auto found = std::find_if(a.lists.begin(), a.lists.end(), [&](auto& l) { return l.first == name; });
    return found == a.lists.end() ? kNone : found->second;
  };
  auto span = [&](const std::string& name) { return tcgen05::Int64s{list(name).data(), list(name).size()}; };
  const std::vector<int64_t>& scalars = list("scalars");
  if (scalars.size() < 3) return false;
  p.idesc = scalars[0];
  p.shared_bytes = scalars[1];
  p.tmem_columns = scalars[2];
  p.repeats = span("repeats");
  struct Lists {
    const char* name;
    tcgen05::Int64s *starts, *place;
  };
  for (const Lists& l : {Lists{"d", &p.d_starts, &p.d_place}, Lists{"a", &p.a_starts, &p.a_place},
                         Lists{"b", &p.b_starts, &p.b_place}, Lists{"sfa", &p.sfa_starts, &p.sfa_place},
                         Lists{"sfb", &p.sfb_starts, &p.sfb_place}}) {
    *l.starts = span(std::string(l.name) + "_starts");
    *l.place = span(std::string(l.name) + "_place");
  }
  try {
    tcgen05::Plan plan = tcgen05::decode_plan(p);
    if (plan.m_repeat * plan.n_repeat * plan.k_repeat > 64) return true;
    // Arrays of exactly the size that the plan names: the sanitizer watches their ends.
    std::vector<std::vector<uint8_t>> arrays;
    auto array = [&](const tcgen05::Placement& place) {
      auto bytes = static_cast<size_t>(place.elements() * place.item_bytes);
      return arrays.emplace_back(bytes, uint8_t{0x3a}).data();
    };
    arrays.reserve(16);
    tcgen05::model::Operands x;
    for (int cta = 0; cta < plan.opcode.cta_group; ++cta) {
      x.d_in[cta] = x.d_out[cta] = array(plan.d);
      x.a[cta] = array(plan.a);
      x.b[cta] = array(plan.b);
      if (!plan.opcode.block_scaled()) continue;
      x.sfa[cta] = array(plan.sfa);
      x.sfb[cta] = array(plan.sfb);
    }
    tcgen05::model::run_plan(plan, x);
    return true;
  } catch (const std::invalid_argument&) {
    return false;
  }
}

}  // namespace fuzz
