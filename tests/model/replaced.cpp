// SPDX-License-Identifier: Apache-2.0
// Atomics that replace a word: swap, and compare-and-swap. Each writes its own number, so that a value says whose it is, and
// what one of them found tells which it replaced: none is replaced twice, nor is what was replaced seen again.
#include "model/world.hpp"
#include "protocols/one_sided.hpp"

namespace thalweg::model {

void World::replace(const Op& op) {
  End& to = end(op.worker, op.peer);
  RemoteRegion* const remote = region(to, op.memory);
  if (remote == nullptr) return;
  const bool narrow = (op.flags & kNarrow) != 0;
  ReplacedWord& word = workers_[op.peer].replaced[op.memory][narrow ? 1 : 0];
  Posted& posted = post(op);
  if ((op.flags & kFetch) != 0) posted.flags &= ~uint32_t{kDetached};  // the value has to be read
  posted.memory = op.memory;
  posted.replaces = &word;
  posted.conditional = op.seed / 4 % 2 != 0;
  posted.compare = op.seed / 8 % 3 == 0 || word.all.empty() ? 0 : word.all.back()->id;
  word.all.push_back(&posted);
  enter_order(posted);
  OpDesc desc = local(posted, Verb::atomic);
  desc.remote = remote;
  desc.remote_offset = workers_[op.peer].exports->memories[op.memory].length + (narrow ? kReplacedNarrow : kReplaced);
  desc.word = narrow ? 4 : 8;
  desc.length = desc.word;
  desc.atomic_op = posted.conditional ? TW_ATOMIC_CSWAP : TW_ATOMIC_SWAP;
  desc.operand = posted.id;
  desc.compare = posted.compare;
  if ((op.flags & kFetch) != 0) desc.result = &posted.result;
  this->posted(posted, workers_[op.worker].engine->start(desc, completion(posted)));
}

/// It ended well, with the value that it found.
void World::end_replace(Posted& posted) {
  posted.replaced = !posted.conditional || posted.result == posted.compare;
  posted.found = true;
  if (workers_[posted.peer].released[posted.memory] || end(posted.worker, posted.peer).broken) return;
  ReplacedWord& word = *posted.replaces;
  posted.data_sure = true;
  evidence(posted);
  if (failure_.empty()) check_replaced(word, posted.result, &posted, "the value that an atomic found");
  if (!failure_.empty()) return;
  if (posted.replaced && !word.by.try_emplace(posted.result, &posted).second)
    return wrong(posted, "it replaced what operation " + std::to_string(word.by[posted.result]->id) + " had replaced");
  make_sure(posted);
}

/// May `value` be in the word, when `reader` (null: the owner, now) looks?
void World::check_replaced(ReplacedWord& word, uint64_t value, const Posted* reader, const std::string& what) {
  const auto before = [&](const Posted& one) {
    if (reader == nullptr) return one.sure;
    const bool same = one.worker == reader->worker;
    return (one.sure && one.sure_at < reader->access.posted) || (same && one.access.epoch < reader->access.epoch);
  };
  if (value == 0) {
    for (const Posted* one : word.all) {
      const bool always = one != reader && !one->conditional && !may_have_failed(*one);
      if (always && before(*one)) return wrong(*one, "it must be applied, and is not in " + what);
    }
  } else {
    Posted* const writer = value < by_id_.size() ? by_id_[value] : nullptr;
    if (writer == nullptr || writer->replaces != &word) return wrong(what + " is nobody's: " + std::to_string(value));
    if (writer == reader) return wrong(*writer, "its own value is there before it");
    if (writer->over && writer->status == TW_AGAIN) return wrong(*writer, "it never began, and was applied");
    if (writer->found && !writer->replaced) return wrong(*writer, "it found another value, and replaced it all the same");
    if (reader != nullptr && writer->worker == reader->worker && writer->access.epoch > reader->access.epoch)
      return wrong(*writer, "it comes behind a fence, and is in " + what);
    if (!writer->sure) {
      writer->data_sure = true;
      evidence(*writer);
    }
  }
  const auto by = word.by.find(value);
  if (failure_.empty() && by != word.by.end() && before(*by->second))
    return wrong(*by->second, "it replaced a value that is still in " + what);
}

}  // namespace thalweg::model
