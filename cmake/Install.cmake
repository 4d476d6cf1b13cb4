# SPDX-License-Identifier: Apache-2.0
# cmake --install: the shared library, headers, CMake package and pkg-config file. python/CMakeLists.txt has the package's component.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS thalweg EXPORT thalweg-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/thalweg DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(EXPORT thalweg-targets NAMESPACE thalweg:: FILE thalweg-targets.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/thalweg COMPONENT development)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/thalweg-config.cmake.in ${PROJECT_BINARY_DIR}/thalweg-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/thalweg)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/thalweg-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/thalweg-config.cmake ${PROJECT_BINARY_DIR}/thalweg-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/thalweg COMPONENT development)

# The directories of the .pc file are relative to the file itself, so that a moved prefix keeps working.
file(RELATIVE_PATH THALWEG_PC_PREFIX
  ${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" THALWEG_PC_PREFIX "${THALWEG_PC_PREFIX}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/thalweg.pc.in ${PROJECT_BINARY_DIR}/thalweg.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/thalweg.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
