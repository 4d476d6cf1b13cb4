# SPDX-License-Identifier: Apache-2.0
# The shared library: hidden symbols, versioned names, SONAME.
file(WRITE ${PROJECT_BINARY_DIR}/empty.cpp "")
add_library(thalweg SHARED ${PROJECT_BINARY_DIR}/empty.cpp)
add_library(thalweg::thalweg ALIAS thalweg)
set_target_properties(thalweg PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0)
target_include_directories(thalweg PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
target_compile_features(thalweg INTERFACE cxx_std_20) # what thalweg.hpp needs
target_link_libraries(thalweg PRIVATE thalweg_collectives thalweg_groups thalweg_plans thalweg_core thalweg_bootstrap)
# Folders that define C functions which nothing inside calls.
set_target_properties(thalweg PROPERTIES LINK_LIBRARY_OVERRIDE "WHOLE_ARCHIVE,thalweg_collectives,thalweg_groups,thalweg_plans,thalweg_core,thalweg_bootstrap,thalweg_memory")
target_link_options(thalweg PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/thalweg.map -Wl,--no-undefined)
set_target_properties(thalweg PROPERTIES LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/thalweg.map)
target_link_options(thalweg PRIVATE ${THALWEG_LTO_LINK})
