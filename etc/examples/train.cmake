# The example in C++, as ./train in the build folder; for GPUs, too, where there are a CUDA compiler and NCCL.
option(BOOTSTRAP_CUDA "Build the example for GPUs, too, where nvcc and NCCL are found" ON)

add_executable(train examples/train.cc)
target_link_libraries(train PRIVATE bootstrap)
set_target_properties(train PROPERTIES BUILD_RPATH_USE_ORIGIN ON) # scripts/cluster shows the build under another path

if(BOOTSTRAP_CUDA AND NOT BOOTSTRAP_SANITIZE) # sanitizers and CUDA map the same addresses
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit)
    find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
    find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}/lib)
  endif()
  if(CUDAToolkit_FOUND AND NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
    add_library(train_cuda OBJECT examples/train_cuda.cu)
    # In place of the options of the directory, which nvcc does not understand.
    set_target_properties(train_cuda PROPERTIES CUDA_STANDARD 17 COMPILE_OPTIONS "-Xcompiler=-Wall,-Wextra,-Wshadow")
    target_include_directories(train_cuda PRIVATE ${NCCL_INCLUDE_DIR} ${PROJECT_SOURCE_DIR}/libbootstrap/include)
    target_compile_definitions(train PRIVATE WITH_CUDA)
    target_link_libraries(train PRIVATE train_cuda CUDA::cudart_static ${NCCL_LIBRARY})
  else()
    message(STATUS "The example train is built for CPUs alone: there is no CUDA compiler or no NCCL")
  endif()
endif()
