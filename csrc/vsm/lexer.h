// Splits PTX text into tokens (PTX ISA 4.1-4.4). Opcodes with all their modifiers and special registers
// with their component are single tokens, so that the parser sees the units that the ISA talks about.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tcgen05::vsm {

enum class TokenKind : uint8_t {
  word,       // register, symbol, label or opcode: letters, digits, _ $ %, with .modifiers and ::qualifiers
  directive,  // a word that starts with a dot
  integer,    // `value`
  real32,     // 0fXXXXXXXX; `value` holds the 32 bits
  real64,     // 0dXXXXXXXXXXXXXXXX, or a decimal floating-point number; `value` holds the 64 bits
  string,
  punct,  // one character, or << >> == != <= >= && ||
  end
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;
  uint64_t value = 0;
  int line = 0;

  bool is(std::string_view s) const { return text == s && kind != TokenKind::string; }
};

// Tokens of the whole text, closed by one `end` token; throws LoadError. `.loc` lines, comments and
// preprocessor lines (`#`) are dropped. The tokens refer to `text`.
std::vector<Token> tokenize(std::string_view text);

}  // namespace tcgen05::vsm
