# Flags that every target of ours shares.
add_library(deltawire_options INTERFACE)
target_compile_options(deltawire_options INTERFACE
  $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Wall -Wextra -Wno-missing-braces $<$<BOOL:${DELTAWIRE_WERROR}>:-Werror>>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall $<$<BOOL:${DELTAWIRE_WERROR}>:--Werror=all-warnings>>)
# A result is the same on machines with and without a fused multiply-add.
target_compile_options(deltawire_options INTERFACE
  $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-ffp-contract=off>
  $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false -Xcompiler=-ffp-contract=off>)
# A header, not a flag: only what includes it is compiled again when tests are switched on or off.
configure_file(${CMAKE_CURRENT_LIST_DIR}/faults.h.in ${PROJECT_BINARY_DIR}/generated/deltawire_faults.h)
target_include_directories(deltawire_options INTERFACE ${PROJECT_BINARY_DIR}/generated)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU") # its flow analysis errs on strings, most of all at -O1 (GCC PR 105651)
  target_compile_options(deltawire_options INTERFACE
    $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Wno-restrict -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread
    -Wno-maybe-uninitialized>)
  # Its memory is collected from 500 MB on: a tenth of the time, for a sixth more memory.
  target_compile_options(deltawire_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=500000>)
endif()
if(DELTAWIRE_SANITIZE)
  target_compile_options(deltawire_options INTERFACE -fsanitize=${DELTAWIRE_SANITIZE}
                         -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(deltawire_options INTERFACE -fsanitize=${DELTAWIRE_SANITIZE})
endif()
if(DELTAWIRE_FUZZ)
  target_compile_options(deltawire_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# deltawire_glue(TARGET SCOPE): code without loops over weights.
function(deltawire_glue target scope)
  target_compile_options(${target} ${scope} $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
endfunction()
