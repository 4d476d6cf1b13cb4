// SPDX-License-Identifier: Apache-2.0
// How events are called in the file, and what `thalweg trace summary` adds up.
#include "trace/event.hpp"

#include <cstddef>

namespace thalweg::impl::trace {
namespace {
constexpr Name kNames[] = {
    {"send", "message"},
    {"recv", "message"},
    {"am", "message"},
    {"am recv", "message"},
    {"bytes send", "message"},
    {"bytes recv", "message"},
    {"put", "one-sided"},
    {"get", "one-sided"},
    {"atomic", "one-sided"},
    {"signal", "one-sided"},
    {"flush", "one-sided"},
    {"put_blocks", "one-sided"},
    {"get_blocks", "one-sided"},
    {"copy", "copy"},
    {"signal wait", "wait"},
    {"reduce", "copy"},
    {"collective", "collective"},
    {"sent", "frame"},
    {"announced", "frame"},
    {"arrived", "frame"},
    {"unexpected", "frame"},
    {"wait", "wait"},
    {"sleep", "wait"},
    {"copy", "copy"},
    {"device copy", "copy"},
    {"handler", "user"},
    {"callback", "user"},
    {"trigger", "queue"},
    {"run", "queue"},
    {"step", "step"},
};
static_assert(sizeof kNames / sizeof *kNames == static_cast<size_t>(What::count_));
}  // namespace

const Name& name_of(What what) { return kNames[static_cast<size_t>(what)]; }

}  // namespace thalweg::impl::trace
