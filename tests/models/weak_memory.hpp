// SPDX-License-Identifier: Apache-2.0
// Small programs on a weakly ordered machine, explored exhaustively: every order in which their loads and stores may take effect,
// in every interleaving.
//
// The machine: memory is one for all threads (a store shows to all at once, as on ARMv8 and x86; not as on POWER, or among three
// threads of PTX). Each thread does its instructions in any order but for these:
//
//   acquire          everything behind it comes after it;  release: everything before it comes before it
//   fence            acquire, release, or acq_rel: loads before it come before what is behind it; what is before it comes before
//                    stores behind it; seq_cst: everything
//   seq_cst          acquire and release, and in order among themselves
//   the same word    in order; a load may take the value of the thread's own store before that shows
//   values, words    what is computed from a load comes after it
//   branches         a store behind a branch comes after what the branch looks at; a load need not (speculation)
//   barrier()        of all threads, as membarrier: at some moment each of the others has done what is before one of its
//                    instructions, and nothing of the rest
//
// Words and values are small numbers. An await is a loop that ends: it takes effect when its word holds what it waits for.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace thalweg::models {

enum class Order : uint8_t { relaxed, acquire, release, acq_rel, seq_cst, none };  // none: of a fence that is left out

using Value = uint8_t;
using Word = unsigned;
/// Where a load's value is kept, in all threads.
struct Reg {
  unsigned index;
};
using Regs = std::array<Value, 16>;

/// A constant, or computed from registers.
struct Expression {
  Expression(int constant) : of([constant](const Regs&) { return static_cast<Value>(constant); }) {}  // NOLINT: implicit
  Expression(Reg reg) : needs(1u << reg.index), of([reg](const Regs& r) { return r[reg.index]; }) {}  // NOLINT: implicit
  uint32_t needs = 0;
  std::function<Value(const Regs&)> of;
};

struct Instruction {
  enum class Kind : uint8_t { load, store, change, await, fence, barrier } kind;
  Word word = 0;
  Order order = Order::relaxed;
  Expression value = 0;                                          // store; change: the operand
  std::function<Value(Value old, Value operand)> how;            // change
  std::function<bool(Value)> until;                              // await
  unsigned into = 0;                                             // load, change, await
  std::vector<std::pair<Reg, std::function<bool(Value)>>> when;  // branches that it is behind
  std::string text;

  bool loads() const { return kind != Kind::store && kind != Kind::fence && kind != Kind::barrier; }
  bool stores() const { return kind == Kind::store || kind == Kind::change; }
  uint32_t condition_needs() const {
    uint32_t all = 0;
    for (const auto& [reg, holds] : when) all |= 1u << reg.index;
    return all;
  }
};

class Program;

class Thread {
 public:
  Reg load(Word word, Order order, const std::string& text);
  void store(Word word, Expression value, Order order, const std::string& text);
  /// Read, modify, write; returns what was there.
  Reg swap(Word word, Expression value, Order order, const std::string& text);
  /// Only where `from` is there.
  Reg swap_if(Word word, Value from, Expression to, Order order, const std::string& text) {
    return change(word, std::move(to), order, text, [from](Value old, Value operand) { return old == from ? operand : old; });
  }
  Reg add(Word word, Expression value, Order order, const std::string& text);
  Reg set_bits(Word word, Expression value, Order order, const std::string& text);
  Reg await(Word word, std::function<bool(Value)> until, Order order, const std::string& text);
  void fence(Order order, const std::string& text);
  void barrier(const std::string& text);
  /// What `body` adds happens if the register holds.
  template <class Body>
  void when(Reg reg, std::function<bool(Value)> holds, Body body) {
    branches_.emplace_back(reg, std::move(holds));
    body();
    branches_.pop_back();
  }

 private:
  friend class Program;
  friend class Explorer;
  explicit Thread(Program& program) : program_(program) {}
  Instruction& append(Instruction::Kind kind, Word word, Order order, const std::string& text);
  Reg change(Word word, Expression value, Order order, const std::string& text, std::function<Value(Value, Value)> how);
  Program& program_;
  std::vector<Instruction> code_;
  std::vector<std::pair<Reg, std::function<bool(Value)>>> branches_;
};

/// What a finished run left behind.
struct Final {
  const std::vector<Value>& memory;
  const Regs& regs;
  bool stuck;  // some await never saw what it waits for
  Value at(Word word) const { return memory[word]; }
  Value of(Reg reg) const { return regs[reg.index]; }
};

/// `weakened` names an order that is made weaker than it is written, "" for none.
class Program {
 public:
  explicit Program(std::string weakened = "") : weakened_(std::move(weakened)) {}
  Thread& thread() { return *threads_.emplace_back(new Thread(*this)); }
  Word word(Value initial = 0);
  /// An order of the code: as written, or weakened if it is the one that is.
  Order order(const std::string& name, Order written, Order weaker) {
    names_.insert(name);
    return name == weakened_ ? weaker : written;
  }
  /// The same of something that is there, or is left out.
  bool keeps(const std::string& name) {
    names_.insert(name);
    return name != weakened_;
  }
  const std::set<std::string>& names() const { return names_; }
  std::function<bool(const Final&)> holds;

 private:
  friend class Thread;
  friend class Explorer;
  std::string weakened_;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<Value> memory_;
  unsigned regs_ = 0;
  std::set<std::string> names_;
};

struct Explored {
  size_t states = 0, ends = 0, violations = 0;
  std::string trace;  // of the first violation: what took effect, in order
};
Explored explore(const Program& program);

}  // namespace thalweg::models
