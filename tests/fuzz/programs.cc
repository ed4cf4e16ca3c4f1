#include "programs.h"

#include <algorithm>
#include <cctype>
#include <sstream>

namespace fuzz {
namespace {

bool word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || std::string("_$%.:").find(c) != std::string::npos;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out;
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    if (word(text[i]))
      while (end < text.size() && word(text[end])) ++end;
    out.push_back(text.substr(i, end - i));
    i = end;
  }
  return out;
}

std::string join(const std::vector<std::string>& tokens) {
  std::string out;
  for (const std::string& t : tokens) out += t;
  return out;
}

std::string repeated(const std::string& s, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += s;
  return out;
}

bool number(const std::string& t) { return std::isdigit(static_cast<unsigned char>(t[0])); }

// One modifier of an opcode is dropped, doubled, moved or replaced.
std::string damage_opcode(const std::string& opcode, const std::string& other, Random& r) {
  auto parts = [](const std::string& s) {
    std::vector<std::string> out;
    std::istringstream in(s);
    for (std::string p; std::getline(in, p, '.');) out.push_back(p);
    return out;
  };
  std::vector<std::string> p = parts(opcode), q = parts(other);
  if (p.size() < 2) return opcode;
  size_t i = 1 + r.below(p.size() - 1);
  switch (r.below(4)) {
    case 0:
      p.erase(p.begin() + static_cast<long>(i));
      break;
    case 1:
      p.insert(p.begin() + static_cast<long>(i), p[1 + r.below(p.size() - 1)]);
      break;
    case 2:
      std::swap(p[i], p[1 + r.below(p.size() - 1)]);
      break;
    default:
      p[i] = q.empty() ? "" : r.pick(q);
  }
  std::string out = p[0];
  for (size_t k = 1; k < p.size(); ++k) out += "." + p[k];
  return out;
}

}  // namespace

Programs::Programs(const std::string& kernel, const std::string& statements) {
  size_t body = kernel.rfind("BODY");
  head_ = kernel.substr(0, body);
  tail_ = kernel.substr(body + 4);
  std::istringstream in(statements);
  for (std::string line; std::getline(in, line);)
    if (!line.empty() && line[0] != '#') statements_.push_back(line);
  tokens_ = split(head_ + statements);
}

std::string Programs::statement(size_t i, Random& r) const {
  std::string out;
  const std::string& s = statements_[i];
  for (size_t at = 0; at < s.size(); ++at) {
    if (s[at] != '<') {
      out += s[at];
      continue;
    }
    size_t close = s.find('>', at);
    std::vector<std::string> choices{""};
    for (char c : s.substr(at + 1, close - at - 1)) {
      if (c == '|') {
        choices.emplace_back();
      } else {
        choices.back() += c == '^' ? '|' : c;  // ^ spells the | of a pair d|p
      }
    }
    out += r.pick(choices);
    at = close;
  }
  return out;
}

std::string Programs::kernel(const std::string& body) const { return head_ + body + tail_; }

std::string Programs::make(Random& r, size_t most) const {
  std::string body;
  size_t n = 1 + r.below(most);
  size_t label = r.below(n);
  for (size_t i = 0; i < n; ++i) {
    if (i == label) body += "A:\n";
    std::string s = statement(r.below(statements_.size()), r);
    if (s[0] != '@' && r.chance(15)) s = (r.chance(50) ? "@%p0 " : "@!%p1 ") + s;
    if (r.chance(5)) s = "{ .reg .b32 %r<3>; .reg .pred %p0; " + s + "; }\n{ " + s + "; }";
    body += "  " + s + ";\n";
  }
  std::string text = kernel(body);
  if (r.chance(10))
    for (size_t at = 0; (at = text.find("cta_group::1", at)) != std::string::npos; ++at) text[at + 11] = '2';
  return text;
}

std::string Programs::damage(std::string text, Random& r) const {
  std::vector<std::string> t = split(text);
  for (uint64_t n = 1 + r.below(4); n; --n) {
    if (t.empty()) break;
    // Mostly near the end, where the generated statements are.
    size_t i = r.chance(70) ? t.size() - 1 - r.below(std::max<size_t>(1, t.size() / 3)) : r.below(t.size());
    auto at = t.begin() + static_cast<long>(i);
    switch (r.below(12)) {
      case 0:
        t.erase(at);
        break;
      case 1:
        t.insert(at, std::string(t[i]));
        break;
      case 2:
        std::swap(t[i], t[r.below(t.size())]);
        break;
      case 3:
      case 4: {
        auto next = std::find_if(at, t.end(), number);
        if (next != t.end()) *next = std::to_string(r.extreme());
        break;
      }
      case 5:
        t[i] = r.pick(tokens_);
        break;
      case 6:
      case 7:
      case 8: {
        auto next =
            std::find_if(at, t.end(), [](const std::string& s) { return s.find('.') != std::string::npos; });
        if (next != t.end()) *next = damage_opcode(*next, r.pick(tokens_), r);
        break;
      }
      case 9:
        if (r.chance(30)) t.resize(i);
        break;
      case 10: {  // a span of tokens many times
        size_t end = std::min(t.size(), i + 1 + r.below(20));
        std::vector<std::string> span(at, t.begin() + static_cast<long>(end));
        std::string many = repeated(join(span), 1 + r.below(r.chance(10) ? 300 : 4));
        t[i] = many;
        break;
      }
      default: {
        std::string junk;
        for (uint64_t k = 1 + r.below(6); k; --k)
          junk +=
              r.chance(50) ? "{}()[]<>,;:+-*/%&|^~!=?@\"\\#"[r.below(27)] : static_cast<char>(r.below(256));
        t.insert(at, junk);
      }
    }
  }
  return join(t);
}

std::string Programs::hostile(Random& r) const {
  size_t n = r.chance(30) ? 100000 : 1 + r.below(300);
  std::string many = std::to_string(n), huge = std::to_string(static_cast<uint64_t>(r.extreme()));
  auto in_kernel = [this](const std::string& s) { return kernel(s); };
  switch (r.below(16)) {
    case 0:
      return in_kernel(repeated("{", n));
    case 1:
      return in_kernel("mov.b32 %r0, " + repeated(r.chance(50) ? "(" : "-", n) + "1;");
    case 2:
      return in_kernel("and.pred %p0, " + repeated("!", n) + "%p1, %p1;");
    case 3:
      return ".version 9.1\n.target sm_100a\n.global .b64 x = " +
             repeated(r.chance(50) ? "generic(" : "{", n) + "1;";
    case 4:
      return in_kernel("ld.b32 %r0, " + repeated("[%g, ", n) + "0];");
    case 5:
      return in_kernel("mov.b64 " + repeated("{", n) + "%r0");
    case 6: {  // functions in a circle
      size_t m = 1 + r.below(2000);
      std::string s = ".version 9.1\n.target sm_100a\n";
      for (size_t i = 0; i < m; ++i) s += ".func f" + std::to_string(i) + ";\n";
      for (size_t i = 0; i < m; ++i)
        s += ".func f" + std::to_string(i) + " { call f" + std::to_string((i + 1) % m) + "; ret; }\n";
      return s + ".entry k { call f0; ret; }\n";
    }
    case 7: {  // every kernel calls every function
      size_t m = 1 + r.below(r.chance(10) ? 600 : 100);
      std::string s = ".version 9.1\n.target sm_100a\n.func f0 { ret; }\n";
      for (size_t i = 1; i < m; ++i)
        s += ".func f" + std::to_string(i) + " { call f" + std::to_string(i - 1) + "; ret; }\n";
      for (size_t i = 0; i < m; ++i)
        s += ".entry k" + std::to_string(i) + " { call f" + std::to_string(m - 1) + "; }\n";
      return s;
    }
    case 8:
      return ".version 9.1\n.target sm_100a\n.global .align " + huge + " .b8 x[" +
             std::to_string(r.extreme()) + "][" + std::to_string(r.extreme()) + "] = {1};\n" +
             repeated(".global .b8 y" + many + "[1073741824] = {2};\n", 1) +
             ".const .b8 z[1000000000];\n.entry k { ret; }\n";
    case 9:
      return in_kernel(".reg .b32 %z<" + huge + ">; mov.b32 %z" + std::to_string(r.below(5)) + ", %z" + huge +
                       ";");
    case 10:
      return in_kernel(".local .align " + huge + " .b8 big[" + std::to_string(r.below(1 << 26)) +
                       "]; st.local.b32 [big+" + huge + "], %r0;");
    case 11:
      return in_kernel(".shared .align " + huge + " .b8 big[" + std::to_string(r.below(1 << 18)) +
                       "]; st.shared.b32 [big+" + huge + "], %r0;");
    case 12: {  // many registers
      std::string s = ".reg .b64 %z<100000>;\n";
      for (size_t i = 0, m = r.below(20000); i < m; ++i) s += "mov.b64 %z" + std::to_string(i) + ", 1;\n";
      return in_kernel(s);
    }
    case 13:
      return in_kernel("tcgen05.ld.sync.aligned.32x32b.x128.b32 {" + repeated("%r0, ", n % 300) +
                       "%r1}, [%t];");
    case 14:
      return in_kernel("mov.b32 %r0, 1 " + repeated(r.chance(50) ? "+ (1 " : "<< 63 * 2 ", n) + ";");
    default: {
      std::string s;
      for (size_t i = 0; i < n; ++i) s += static_cast<char>(r.below(256));
      return s;
    }
  }
}

}  // namespace fuzz
