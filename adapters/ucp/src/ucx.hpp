// SPDX-License-Identifier: Apache-2.0
// UCX's interface as its installed headers declare it: what this library exports, and nothing else. Their functions are declared with
// default visibility, because everything else here is hidden.
#pragma once
#pragma GCC visibility push(default)
#include <ucp/api/ucp.h>
#pragma GCC visibility pop

// Functions, fields and flags that came after 1.13 are built where the headers have them: THALWEG_HAS_<name>, of the list in
// CMakeLists.txt, is 0 or 1.
