# The example in C++, as ./train in the build folder; for GPUs, too, where there are a CUDA compiler and NCCL.
option(BOOTSTRAP_CUDA "Build the example for GPUs, too, where nvcc and NCCL are found" ON)

add_executable(train examples/train.cc)
target_link_libraries(train PRIVATE bootstrap)
set_target_properties(train PROPERTIES BUILD_RPATH_USE_ORIGIN ON) # scripts/cluster shows the build under another path

if(BOOTSTRAP_CUDA AND NOT BOOTSTRAP_SANITIZE) # sanitizers and CUDA map the same addresses
  find_package(CUDAToolkit QUIET)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib)
  if(CUDAToolkit_NVCC_EXECUTABLE AND NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
    # One file: to enable CUDA as a language takes longer than to compile it.
    set(_object ${CMAKE_CURRENT_BINARY_DIR}/train_cuda.o)
    add_custom_command(
      OUTPUT ${_object}
      COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} -std=c++17 -O2 -Xcompiler=-fPIC,-Wall,-Wextra,-Wshadow
              -I${NCCL_INCLUDE_DIR} -I${PROJECT_SOURCE_DIR}/libbootstrap/include -MD -MF ${_object}.d
              -c ${CMAKE_CURRENT_SOURCE_DIR}/examples/train_cuda.cu -o ${_object}
      DEPENDS examples/train_cuda.cu DEPFILE ${_object}.d VERBATIM)
    target_sources(train PRIVATE ${_object})
    target_compile_definitions(train PRIVATE WITH_CUDA)
    target_link_libraries(train PRIVATE CUDA::cudart_static ${NCCL_LIBRARY})
  else()
    message(STATUS "The example train is built for CPUs alone: there is no CUDA compiler or no NCCL")
  endif()
endif()
