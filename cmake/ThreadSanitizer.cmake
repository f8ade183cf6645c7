# Tests of services: gRPC calls their reactors from its own threads, which are not built for the thread sanitizer, so that what gRPC
# orders looks like hundreds of races. Other builds have them.
if(MUSTER_SANITIZE MATCHES thread)
  set(MUSTER_TSAN_LEAVES_OUT control_test director_test evaluation_test ps_service_test rpc_test security_test trace_test)
endif()

# muster_tsan_knows_absl(TARGET): in thread sanitizer builds, tells it what absl::Mutex of Debian's package orders.
function(muster_tsan_knows_absl target)
  if(NOT MUSTER_SANITIZE MATCHES thread)
    return()
  endif()
  target_sources(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/tsan/absl_mutex.cc)
  target_link_libraries(${target} PRIVATE absl::synchronization)
  foreach(symbol Mutex4LockEv Mutex6UnlockEv Mutex7TryLockEv Mutex10ReaderLockEv Mutex12ReaderUnlockEv Mutex5AwaitERKNS0_9ConditionE
          Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE)
    target_link_options(${target} PRIVATE -Wl,--wrap=_ZN4absl7debian35${symbol})
  endforeach()
  foreach(symbol CondVar4WaitEPNS0_5MutexE CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE
          CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE)
    target_link_options(${target} PRIVATE -Wl,--wrap=_ZN4absl7debian37${symbol})
  endforeach()
  target_link_options(${target} PRIVATE -Wl,--wrap=_ZN4absl7debian319ReleasableMutexLock7ReleaseEv)
endfunction()
