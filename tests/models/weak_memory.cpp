// SPDX-License-Identifier: Apache-2.0
#include "models/weak_memory.hpp"

namespace thalweg::models {

using Kind = Instruction::Kind;

Instruction& Thread::append(Kind kind, Word word, Order order, const std::string& text) {
  Instruction& made = code_.emplace_back();
  made.kind = kind;
  made.word = word;
  made.order = order;
  made.text = text;
  made.when = branches_;
  if (made.loads()) made.into = program_.regs_++;
  return made;
}
Reg Thread::load(Word word, Order order, const std::string& text) { return {append(Kind::load, word, order, text).into}; }
void Thread::store(Word word, Expression value, Order order, const std::string& text) {
  append(Kind::store, word, order, text).value = std::move(value);
}
Reg Thread::change(Word word, Expression value, Order order, const std::string& text, std::function<Value(Value, Value)> how) {
  Instruction& made = append(Kind::change, word, order, text);
  made.value = std::move(value);
  made.how = std::move(how);
  return {made.into};
}
Reg Thread::swap(Word word, Expression value, Order order, const std::string& text) {
  return change(word, std::move(value), order, text, [](Value, Value operand) { return operand; });
}
Reg Thread::add(Word word, Expression value, Order order, const std::string& text) {
  return change(word, std::move(value), order, text,
                [](Value old, Value operand) { return static_cast<Value>(old + operand); });
}
Reg Thread::set_bits(Word word, Expression value, Order order, const std::string& text) {
  return change(word, std::move(value), order, text,
                [](Value old, Value operand) { return static_cast<Value>(old | operand); });
}
Reg Thread::await(Word word, std::function<bool(Value)> until, Order order, const std::string& text) {
  Instruction& made = append(Kind::await, word, order, text);
  made.until = std::move(until);
  return {made.into};
}
void Thread::fence(Order order, const std::string& text) {
  if (order != Order::none) append(Kind::fence, 0, order, text);
}
void Thread::barrier(const std::string& text) { append(Kind::barrier, 0, Order::seq_cst, text); }

Word Program::word(Value initial) {
  memory_.push_back(initial);
  return static_cast<Word>(memory_.size() - 1);
}

namespace {

bool acquires(const Instruction& one) {
  return one.loads() && (one.order == Order::acquire || one.order == Order::acq_rel || one.order == Order::seq_cst);
}
bool releases(const Instruction& one) {
  return one.stores() && (one.order == Order::release || one.order == Order::acq_rel || one.order == Order::seq_cst);
}
bool full(const Instruction& one) {
  return one.kind == Kind::barrier || (one.kind == Kind::fence && one.order == Order::seq_cst);
}

/// Does a fence keep what is before it, and what is behind it, in order?
bool separates(const Instruction& fence, const Instruction& before, const Instruction& behind) {
  if (full(fence)) return true;
  const bool acquire = fence.order == Order::acquire || fence.order == Order::acq_rel;
  const bool release = fence.order == Order::release || fence.order == Order::acq_rel;
  return (acquire && before.loads()) || (release && behind.stores());
}

/// Must `before`, an earlier instruction of the same thread, have taken effect first, whatever words they use?
bool keeps_order(const Instruction& before, const Instruction& behind) {
  if (acquires(before) || releases(behind)) return true;
  if (before.order == Order::seq_cst && behind.order == Order::seq_cst) return true;
  if (before.kind == Kind::barrier || behind.kind == Kind::barrier) return true;
  return before.kind == Kind::await && behind.stores();  // the loop's branch
}

}  // namespace

class Explorer {
 public:
  explicit Explorer(const Program& program) : program_(program) {
    for (const auto& thread : program.threads_) {
      const std::vector<Instruction>& code = thread->code_;
      std::vector<uint32_t> before(code.size());
      for (size_t i = 0; i < code.size(); ++i) {
        for (size_t j = 0; j < i; ++j) {
          bool ordered = keeps_order(code[j], code[i]);
          for (size_t f = j + 1; f < i && !ordered; ++f)
            ordered = code[f].kind == Kind::fence && separates(code[f], code[j], code[i]);
          if (ordered) before[i] |= 1u << j;
        }
      }
      before_.push_back(std::move(before));
    }
  }

  Explored run() {
    State first;
    first.memory = program_.memory_;
    first.done.resize(program_.threads_.size());
    visit(first);
    return out_;
  }

 private:
  struct State {
    std::vector<Value> memory;
    std::vector<uint32_t> done;  // of each thread, by instruction
    uint32_t known = 0;          // registers
    Regs regs{};
    std::string key() const {
      std::string all(memory.begin(), memory.end());
      all.append(reinterpret_cast<const char*>(done.data()), done.size() * sizeof done[0]);
      all.append(reinterpret_cast<const char*>(&known), sizeof known);
      all.append(regs.begin(), regs.end());
      return all;
    }
  };
  const std::vector<Instruction>& code(size_t thread) const { return program_.threads_[thread]->code_; }
  static bool passes(const Instruction& one, const Regs& regs) {
    for (const auto& [reg, holds] : one.when) {
      if (!holds(regs[reg.index])) return false;
    }
    return true;
  }

  void visit(const State& state) {
    if (!seen_.insert(state.key()).second) return;
    ++out_.states;
    bool any = false;
    for (size_t t = 0; t < program_.threads_.size(); ++t) {
      for (size_t i = 0; i < code(t).size(); ++i) {
        if ((state.done[t] >> i & 1) == 0) any = step(state, t, i) || any;
      }
    }
    if (!any) end(state);
  }

  /// Takes effect, if it may. A branch that is not taken makes it nothing.
  bool step(const State& state, size_t t, size_t i) {
    const Instruction& one = code(t)[i];
    if (one.kind == Kind::fence) return take(state, t, i, one, false);
    const uint32_t branch = one.condition_needs();
    const bool decided = (state.known & branch) == branch;
    if (decided && !passes(one, state.regs)) return take(state, t, i, one, false);
    if ((before_[t][i] & ~state.done[t] & ~fences(t)) != 0) return false;
    if ((one.stores() || one.kind == Kind::barrier || one.kind == Kind::await) && !decided) return false;
    if ((state.known & one.value.needs) != one.value.needs) return false;
    if (one.kind == Kind::barrier && !others_between(state, t)) return false;
    Value found = 0;
    if (one.kind != Kind::barrier && !look(state, t, i, &found)) return false;
    if (one.kind == Kind::await && !one.until(found)) return false;
    return take(state, t, i, one, true, found);
  }

  uint32_t fences(size_t t) const {
    uint32_t all = 0;
    for (size_t i = 0; i < code(t).size(); ++i) all |= uint32_t{code(t)[i].kind == Kind::fence} << i;
    return all;
  }

  /// The word's value as this instruction may see it. False: an earlier instruction at the same word comes first.
  bool look(const State& state, size_t t, size_t i, Value* found) const {
    const Instruction& one = code(t)[i];
    *found = state.memory[one.word];
    for (size_t j = i; j-- > 0;) {
      const Instruction& earlier = code(t)[j];
      const bool same = earlier.kind != Kind::fence && earlier.kind != Kind::barrier && earlier.word == one.word;
      if (!same || (state.done[t] >> j & 1) != 0) continue;
      const bool forwards = one.kind == Kind::load && earlier.kind == Kind::store;
      const uint32_t needs = earlier.value.needs | earlier.condition_needs();
      if (!forwards || (state.known & needs) != needs) return false;
      if (!passes(earlier, state.regs)) continue;
      *found = earlier.value.of(state.regs);
      return true;
    }
    return true;
  }

  /// Is each other thread between two of its instructions?
  bool others_between(const State& state, size_t t) const {
    for (size_t other = 0; other < program_.threads_.size(); ++other) {
      if (other == t) continue;
      const uint32_t done = state.done[other] | fences(other);
      bool gap = false;
      for (size_t i = 0; i < code(other).size(); ++i) {
        const bool is_done = (done >> i & 1) != 0, is_fence = code(other)[i].kind == Kind::fence;
        if (is_done && !is_fence && gap) return false;
        gap = gap || !is_done;
      }
    }
    return true;
  }

  bool take(const State& state, size_t t, size_t i, const Instruction& one, bool effect, Value found = 0) {
    State next = state;
    next.done[t] |= 1u << i;
    if (one.loads()) next.known |= 1u << one.into;
    if (effect && one.loads()) next.regs[one.into] = found;
    if (effect && one.stores()) {
      const Value operand = one.value.of(state.regs);
      next.memory[one.word] = one.kind == Kind::change ? one.how(found, operand) : operand;
    }
    if (effect) trace_.push_back(&one);
    visit(next);
    if (effect) trace_.pop_back();
    return true;
  }

  void end(const State& state) {
    ++out_.ends;
    bool stuck = false;
    for (size_t t = 0; t < program_.threads_.size(); ++t) stuck = stuck || state.done[t] != (1ull << code(t).size()) - 1;
    if (program_.holds({state.memory, state.regs, stuck})) return;
    if (out_.violations++ != 0) return;
    for (const Instruction* one : trace_) out_.trace += "  " + one->text + "\n";
    if (stuck) out_.trace += "  (somebody waits for ever)\n";
  }

  const Program& program_;
  std::vector<std::vector<uint32_t>> before_;
  std::unordered_set<std::string> seen_;
  std::vector<const Instruction*> trace_;
  Explored out_;
};

Explored explore(const Program& program) { return Explorer(program).run(); }

}  // namespace thalweg::models
