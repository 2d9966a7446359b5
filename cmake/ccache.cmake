# ccache, where it is there: a second tree, or a clean one, compiles what is new alone. Whoever names a
# launcher of their own, or an empty one, is left alone.
find_program(DELTAWIRE_CCACHE ccache DOC "Compiler cache")
mark_as_advanced(DELTAWIRE_CCACHE)
foreach(language C CXX CUDA)
  # Paths below the tree count from it: trees at other places share what they compiled.
  set(launcher env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
      CCACHE_SLOPPINESS=pch_defines,time_macros ${DELTAWIRE_CCACHE})
  if(DELTAWIRE_CCACHE AND (NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER OR
                           CMAKE_${language}_COMPILER_LAUNCHER MATCHES "^([^;]*/)?ccache$"))
    set(CMAKE_${language}_COMPILER_LAUNCHER ${launcher})
  endif()
endforeach()
