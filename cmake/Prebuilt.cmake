# SPDX-License-Identifier: Apache-2.0
# THALWEG_PREBUILT=DIRECTORY: the Python package (pip install, a wheel) is made of a finished build, whose THALWEG_PYTHON was ON and whose
# interpreter is the same, instead of compiling the library again. scripts/build.sh does so.
project(thalweg LANGUAGES NONE)
if(NOT EXISTS ${THALWEG_PREBUILT}/cmake_install.cmake)
  message(FATAL_ERROR "THALWEG_PREBUILT: ${THALWEG_PREBUILT} is no build directory")
endif()
install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" --install \"${THALWEG_PREBUILT}\" --component python
  --prefix \"\${CMAKE_INSTALL_PREFIX}\" COMMAND_ERROR_IS_FATAL ANY)" COMPONENT python)
