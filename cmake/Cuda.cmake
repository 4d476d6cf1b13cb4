# SPDX-License-Identifier: Apache-2.0
# The kernels of src/devices/kernels, compiled by nvcc where there is one and embedded into thalweg_devices. Nothing else of CUDA
# is needed to build; without nvcc the library still moves GPU memory by copy engines, and says so.
set(cuda_python ${PROJECT_SOURCE_DIR}/.venv)
if(DEFINED ENV{VIRTUAL_ENV})
  list(APPEND cuda_python $ENV{VIRTUAL_ENV})
endif()
set(cuda_hints "")
foreach(environment IN LISTS cuda_python)
  file(GLOB found ${environment}/lib/python3*/site-packages/nvidia/cu13/bin) # package nvidia-cuda-nvcc
  list(APPEND cuda_hints ${found})
endforeach()
find_program(THALWEG_NVCC nvcc HINTS ${cuda_hints} PATHS /usr/local/cuda/bin DOC "CUDA's compiler, for the kernels; OFF: none")
set(THALWEG_CUDA_ARCHITECTURES 80 90 100 CACHE STRING "GPUs that the kernels are compiled for; for the first also as PTX, for newer ones")
set(cuda_gencode "")
foreach(number IN LISTS THALWEG_CUDA_ARCHITECTURES)
  set(code sm_${number})
  if(NOT cuda_gencode)
    set(code [sm_${number},compute_${number}])
  endif()
  list(APPEND cuda_gencode -gencode=arch=compute_${number},code=${code})
endforeach()

set(cuda_image ${PROJECT_BINARY_DIR}/cuda_kernels.cpp)
set(embed ${PROJECT_SOURCE_DIR}/cmake/EmbedBytes.cmake)
set(cuda_embedded -DOUTPUT=${cuda_image} -DHEADER=devices/cuda/kernels.hpp -DFUNCTION=thalweg::impl::cuda::kernels_image -P ${embed})
if(THALWEG_NVCC)
  message(STATUS "CUDA kernels: by ${THALWEG_NVCC}")
  file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/devices/cuda/kernels/*
    ${PROJECT_SOURCE_DIR}/src/devices/kernels/* ${PROJECT_SOURCE_DIR}/src/devices/program/*.hpp
    ${PROJECT_SOURCE_DIR}/include/thalweg/device/*.hpp ${PROJECT_SOURCE_DIR}/include/thalweg/device/machine/*.hpp)
  list(APPEND cuda_sources ${PROJECT_SOURCE_DIR}/src/devices/persistent/block.hpp)
  set(fatbin ${PROJECT_BINARY_DIR}/cuda_kernels.fatbin)
  add_custom_command(OUTPUT ${cuda_image}
    COMMAND ${THALWEG_NVCC} --threads 2 -fatbin -Xfatbin=-compress-all -std=c++17 -O3 -Xcompiler -Wall
      -I${PROJECT_SOURCE_DIR}/include -I${PROJECT_SOURCE_DIR}/src ${cuda_gencode}
      ${PROJECT_SOURCE_DIR}/src/devices/cuda/kernels/kernels.cu -o ${fatbin}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${fatbin} ${cuda_embedded}
    DEPENDS ${cuda_sources} ${embed} COMMENT "Compiling the CUDA kernels" VERBATIM)
else()
  message(STATUS "CUDA kernels: none, as there is no nvcc (THALWEG_NVCC, or the Python package nvidia-cuda-nvcc)")
  add_custom_command(OUTPUT ${cuda_image} COMMAND ${CMAKE_COMMAND} ${cuda_embedded} DEPENDS ${embed} VERBATIM)
endif()
add_library(thalweg_cuda_kernels STATIC ${cuda_image})
target_link_libraries(thalweg_cuda_kernels PRIVATE thalweg_base)
if(CMAKE_GENERATOR MATCHES Ninja)
  # By its file: as a target, its generated source would hold up compiling everything above thalweg_devices for the minutes that nvcc takes.
  target_link_libraries(thalweg_devices PUBLIC ${PROJECT_BINARY_DIR}/${CMAKE_STATIC_LIBRARY_PREFIX}thalweg_cuda_kernels${CMAKE_STATIC_LIBRARY_SUFFIX})
else()
  target_link_libraries(thalweg_devices PUBLIC thalweg_cuda_kernels)
endif()
target_link_libraries(thalweg_devices PRIVATE ${CMAKE_DL_LIBS})
