# The GPU part: DELTAWIRE_HAVE_CUDA says whether it is compiled. DELTAWIRE_CUDA asks for it:
#   AUTO  where a GPU is present and nvcc 12.8 or newer is found, for that GPU
#   ON    always: for the GPU that is present, without one for all architectures; stops without nvcc
#   ALL   always, for all architectures: what is given to others
#   OFF   never
set(DELTAWIRE_HAVE_CUDA OFF)
set(modes AUTO ON ALL OFF)
string(TOUPPER "${DELTAWIRE_CUDA}" mode)
if(NOT mode IN_LIST modes)
  message(FATAL_ERROR "DELTAWIRE_CUDA is \"${DELTAWIRE_CUDA}\"; it can be AUTO, ON, ALL or OFF")
endif()
if(mode STREQUAL OFF)
  return()
endif()

# Of every GPU that the driver knows: "90-real", say. Empty without a driver.
set(own_architectures "")
find_program(DELTAWIRE_NVIDIA_SMI nvidia-smi DOC "NVIDIA's driver tool")
mark_as_advanced(DELTAWIRE_NVIDIA_SMI)
if(DELTAWIRE_NVIDIA_SMI)
  execute_process(COMMAND ${DELTAWIRE_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE capabilities RESULT_VARIABLE status ERROR_QUIET)
  if(status EQUAL 0)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]" own_architectures "${capabilities}")
    list(REMOVE_DUPLICATES own_architectures)
    list(TRANSFORM own_architectures REPLACE "([0-9]+)\\.([0-9])" "\\1\\2-real")
  endif()
endif()
if(mode STREQUAL AUTO AND NOT own_architectures)
  message(NOTICE "no GPU found: no GPU kernels (DELTAWIRE_CUDA=ON compiles them all the same)")
  return()
endif()

macro(no_kernels why) # returns from this file
  if(mode STREQUAL AUTO)
    message(NOTICE "${why}: no GPU kernels")
    return()
  endif()
  message(FATAL_ERROR "DELTAWIRE_CUDA=${mode}, but ${why}; install CUDA 12.8 or newer, or say DELTAWIRE_CUDA=OFF")
endmacro()
find_program(DELTAWIRE_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin DOC "NVIDIA's compiler")
if(NOT DELTAWIRE_NVCC)
  no_kernels("nvcc is not found")
endif()
# Asked before CMake is: it would stop at one that does not know the newest architectures.
execute_process(COMMAND ${DELTAWIRE_NVCC} --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" nvcc_version "${nvcc_version}")
if(CMAKE_MATCH_1 VERSION_LESS 12.8)
  no_kernels("${DELTAWIRE_NVCC} is older than 12.8")
endif()

# CUDAARCHS=80 in the environment, or -DCMAKE_CUDA_ARCHITECTURES, is taken as it is. All are Ampere, Hopper
# and Blackwell, whose code also runs on later GPUs of their generation, and PTX for everything newer.
if(NOT DEFINED CACHE{CMAKE_CUDA_ARCHITECTURES})
  if(DEFINED ENV{CUDAARCHS})
    set(CMAKE_CUDA_ARCHITECTURES $ENV{CUDAARCHS})
  elseif(own_architectures AND NOT mode STREQUAL ALL)
    set(CMAKE_CUDA_ARCHITECTURES ${own_architectures})
  else()
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100)
  endif()
endif()
set(CMAKE_CUDA_COMPILER ${DELTAWIRE_NVCC} CACHE FILEPATH "NVIDIA's compiler")
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION) # CMake 3.25 does not know the flag
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
find_package(CUDAToolkit REQUIRED)
set(DELTAWIRE_HAVE_CUDA ON)
