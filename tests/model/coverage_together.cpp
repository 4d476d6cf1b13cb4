// SPDX-License-Identifier: Apache-2.0
// The part of collectives: verb by algorithm by type, and verb by what happened.
#include <cstdio>
#include <iterator>

#include "model/coverage.hpp"

namespace thalweg::model {
namespace {

constexpr const char* kHows[] = {"ended",   "lost",  "at once",    "though lost", "in place",
                                 "devices", "among", "repeatable", "wrapped"};
static_assert(std::size(kHows) == static_cast<size_t>(CollectiveHappening::count_));

const char* by(Together verb, unsigned n) { return n == 0 ? "costs" : algorithm_name(verb, n); }

constexpr const char* kForms[] = {"request", "callback", "blocking", "direct", "planned", "queued"};
static_assert(std::size(kForms) == static_cast<size_t>(CollectiveForm::count_));

template <class Row>
void add_row(std::string& out, const char* first, const char* second, const Row& row) {
  char text[64];
  std::snprintf(text, sizeof text, "%-15s %-18s", first, second);
  out += text;
  for (const uint64_t n : row) {
    std::snprintf(text, sizeof text, "%12llu", static_cast<unsigned long long>(n));
    out += text;
  }
  out += "\n";
}
void add_head(std::string& out, const char* second, const char* const* begin, const char* const* end) {
  char text[64];
  std::snprintf(text, sizeof text, "%-15s %-18s", "collective", second);
  out += text;
  for (; begin != end; ++begin) {
    std::snprintf(text, sizeof text, "%12s", *begin);
    out += text;
  }
  out += "\n";
}

/// May it happen to the verb, and often enough to be seen?
bool may_be(Together verb, CollectiveHappening how) {
  using enum CollectiveHappening;
  const bool barrier = verb == Together::barrier;
  if (how == in_place) return !barrier && verb != Together::broadcast && verb != Together::alltoallv;
  return how != of_device || !barrier;
}

}  // namespace

std::string Coverage::table_together() const {
  std::string out;
  const char* classes[static_cast<size_t>(TypeClass::count_)];
  for (size_t i = 0; i < std::size(classes); ++i) classes[i] = name_of(static_cast<TypeClass>(i));
  add_head(out, "by", std::begin(classes), std::end(classes));
  for (size_t verb = 0; verb < kTogether; ++verb) {
    const Together one = static_cast<Together>(verb);
    for (unsigned n = 0; n < together_[verb].size(); ++n) {
      if (n == 0 || *algorithm_name(one, n) != 0) add_row(out, name_of(one), by(one, n), together_[verb][n]);
    }
  }
  add_head(out, "", std::begin(kHows), std::end(kHows));
  for (size_t verb = 0; verb < kTogether; ++verb) add_row(out, name_of(static_cast<Together>(verb)), "", together_how_[verb]);
  return out;
}

const char* name_of(CollectiveForm form) { return kForms[static_cast<size_t>(form)]; }

std::string Coverage::table_forms() const {
  std::string out;
  add_head(out, "", std::begin(kForms), std::end(kForms));
  for (size_t verb = 0; verb < kTogether; ++verb) add_row(out, name_of(static_cast<Together>(verb)), "", forms_[verb]);
  return out;
}

std::string Coverage::holes_forms(bool queued) const {
  std::string out;
  for (size_t verb = 0; verb < kTogether; ++verb) {
    for (size_t form = 0; form < forms_[verb].size(); ++form) {
      const bool asked = queued || static_cast<CollectiveForm>(form) != CollectiveForm::queued;
      if (asked && forms_[verb][form] == 0)
        out += std::string(name_of(static_cast<Together>(verb))) + ", " + kForms[form] + "\n";
    }
  }
  return out;
}

/// By the sizes of groups that there were.
bool Coverage::should_be(Together verb, unsigned algorithm, TypeClass type) const {
  const bool user = type == TypeClass::user;
  if (user && !combines(verb)) return false;
  if (verb == Together::barrier) return type == TypeClass::half && algorithm <= 1;  // the first type stands for none
  if (algorithm == 0) return true;
  for (unsigned size = 2; size <= kWorkers; ++size) {
    if ((sizes_ >> size & 1) != 0 && algorithm_applies(verb, algorithm, size, true)) return true;
  }
  return false;
}

std::string Coverage::holes_together() const {
  std::string out;
  for (size_t verb = 0; verb < kTogether; ++verb) {
    const Together one = static_cast<Together>(verb);
    for (unsigned n = 0; n < together_[verb].size(); ++n) {
      for (size_t type = 0; type < together_[verb][n].size(); ++type) {
        if (together_[verb][n][type] == 0 && should_be(one, n, static_cast<TypeClass>(type)))
          out += std::string(name_of(one)) + " by " + by(one, n) + " of " + name_of(static_cast<TypeClass>(type)) + "\n";
      }
    }
    for (size_t how = 0; how < together_how_[verb].size(); ++how) {
      if (together_how_[verb][how] == 0 && may_be(one, static_cast<CollectiveHappening>(how)))
        out += std::string(name_of(one)) + ": " + kHows[how] + "\n";
    }
  }
  return out;
}

}  // namespace thalweg::model
