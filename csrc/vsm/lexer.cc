#include "vsm/lexer.h"

#include <cctype>
#include <cstdlib>
#include <cstring>
#include <string>

#include "vsm/error.h"

namespace tcgen05::vsm {
namespace {

bool word_start(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '$'; }
bool word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$'; }

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    std::vector<Token> out;
    while (true) {
      skip_blank();
      if (pos_ >= text_.size()) break;
      Token t = next();
      if (t.kind == TokenKind::directive && t.text == ".loc") {
        skip_line();
        continue;
      }
      out.push_back(t);
    }
    out.push_back({TokenKind::end, "end of text", 0, line_});
    return out;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw LoadError("line " + std::to_string(line_) + ": " + what);
  }

  char at(size_t i) const { return i < text_.size() ? text_[i] : '\0'; }

  void skip_line() {
    while (pos_ < text_.size() && text_[pos_] != '\n') ++pos_;
  }

  void skip_blank() {
    while (pos_ < text_.size()) {
      char c = text_[pos_];
      if (c == '\n') {
        ++line_;
        ++pos_;
      } else if (std::isspace(static_cast<unsigned char>(c)) || c == '\0') {
        ++pos_;
      } else if (c == '/' && at(pos_ + 1) == '/') {
        skip_line();
      } else if (c == '/' && at(pos_ + 1) == '*') {
        size_t close = text_.find("*/", pos_ + 2);
        if (close == std::string_view::npos) fail("comment is not closed");
        for (; pos_ < close + 2; ++pos_) line_ += text_[pos_] == '\n';
      } else if (c == '#') {
        skip_line();
      } else {
        return;
      }
    }
  }

  Token token(TokenKind kind, size_t begin) const {
    return {kind, text_.substr(begin, pos_ - begin), 0, line_};
  }

  Token next() {
    size_t begin = pos_;
    char c = text_[pos_];
    if (c == '%' || c == '.' ? word_char(at(pos_ + 1)) : word_start(c)) {  // a lone % divides
      ++pos_;
      while (true) {
        if (word_char(at(pos_))) {
          ++pos_;
        } else if (c != '.' && at(pos_) == '.' && word_char(at(pos_ + 1))) {  // `.reg.b16` is two directives
          pos_ += 2;
        } else if (at(pos_) == ':' && at(pos_ + 1) == ':' && word_char(at(pos_ + 2))) {
          pos_ += 3;
        } else {
          break;
        }
      }
      return token(c == '.' ? TokenKind::directive : TokenKind::word, begin);
    }
    if (std::isdigit(static_cast<unsigned char>(c))) return number();
    if (c == '"') {
      for (++pos_; at(pos_) != '"'; ++pos_) {
        if (pos_ >= text_.size() || text_[pos_] == '\n') fail("string is not closed");
        if (text_[pos_] == '\\') ++pos_;
      }
      ++pos_;
      return {TokenKind::string, text_.substr(begin + 1, pos_ - begin - 2), 0, line_};
    }
    static constexpr std::string_view kPairs[] = {"<<", ">>", "==", "!=", "<=", ">=", "&&", "||"};
    for (std::string_view pair : kPairs) {
      if (text_.substr(pos_, 2) == pair) {
        pos_ += 2;
        return token(TokenKind::punct, begin);
      }
    }
    if (!std::strchr("(){}[]<>,;:+-*/%&|^~!=?@", c)) fail(std::string("unexpected character '") + c + "'");
    ++pos_;
    return token(TokenKind::punct, begin);
  }

  Token hex_bits(size_t digits, TokenKind kind) {
    size_t begin = pos_;
    pos_ += 2;
    uint64_t value = 0;
    for (size_t i = 0; i < digits; ++i, ++pos_) {
      if (!std::isxdigit(static_cast<unsigned char>(at(pos_))))
        fail("floating-point constant needs " + std::to_string(digits) + " hexadecimal digits");
      char c = at(pos_);
      value = value * 16 + static_cast<uint64_t>(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    Token t = token(kind, begin);
    t.value = value;
    return t;
  }

  Token number() {
    size_t begin = pos_;
    char second = static_cast<char>(at(pos_ + 1) | 32);
    if (text_[pos_] == '0' && second == 'f') return hex_bits(8, TokenKind::real32);
    if (text_[pos_] == '0' && second == 'd') return hex_bits(16, TokenKind::real64);
    int base = 10;
    if (text_[pos_] == '0' && second == 'x') {
      base = 16;
      pos_ += 2;
    } else if (text_[pos_] == '0' && second == 'b') {
      base = 2;
      pos_ += 2;
    } else if (text_[pos_] == '0') {
      base = 8;
    }
    size_t digits = pos_;
    while (std::isxdigit(static_cast<unsigned char>(at(pos_)))) {
      if (base != 16 && !std::isdigit(static_cast<unsigned char>(at(pos_)))) break;
      ++pos_;
    }
    if (base != 16 && base != 2 && (at(pos_) == '.' || (at(pos_) | 32) == 'e')) return decimal_real(begin);
    std::string spelled(text_.substr(digits, pos_ - digits));
    if (spelled.empty()) fail("number has no digits");
    errno = 0;
    char* stop = nullptr;
    uint64_t value = std::strtoull(spelled.c_str(), &stop, base);
    if (*stop || errno) fail("'" + spelled + "' is no integer of 64 bits in base " + std::to_string(base));
    if (at(pos_) == 'U') ++pos_;
    if (word_char(at(pos_))) fail("unexpected character after a number: '" + std::string(1, at(pos_)) + "'");
    Token t = token(TokenKind::integer, begin);
    t.value = value;
    return t;
  }

  Token decimal_real(size_t begin) {
    while (std::isdigit(static_cast<unsigned char>(at(pos_)))) ++pos_;
    if (at(pos_) == '.') ++pos_;
    while (std::isdigit(static_cast<unsigned char>(at(pos_)))) ++pos_;
    if ((at(pos_) | 32) == 'e') {
      ++pos_;
      if (at(pos_) == '+' || at(pos_) == '-') ++pos_;
      while (std::isdigit(static_cast<unsigned char>(at(pos_)))) ++pos_;
    }
    Token t = token(TokenKind::real64, begin);
    double d = std::strtod(std::string(t.text).c_str(), nullptr);
    std::memcpy(&t.value, &d, sizeof d);
    return t;
  }

  std::string_view text_;
  size_t pos_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<Token> tokenize(std::string_view text) { return Lexer(text).run(); }

}  // namespace tcgen05::vsm
