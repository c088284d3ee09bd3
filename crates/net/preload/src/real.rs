//! The C library's own functions, behind those of this library.

use std::ffi::{CStr, c_void};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

/// A function of the library that comes next, which is found at its first call.
#[derive(Debug)]
pub struct Real {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

impl Real {
    pub const fn new(name: &'static CStr) -> Real {
        Real { name, at: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address; that of [`missing`] in an older C library.
    pub fn get(&self) -> *mut c_void {
        let at = self.at.load(Relaxed);
        if at.is_null() { self.find() } else { at }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name ends with a zero.
        let mut at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if at.is_null() {
            at = missing as *mut c_void;
        }
        self.at.store(at, Relaxed);
        at
    }
}

/// Functions with what serves them: an expression with the value, in which `real` is the C library's function with the
/// same arguments.
macro_rules! hooks {
    ($($(#[$about:meta])* $name:ident $text:literal ($($arg:ident: $kind:ty),*) -> $value:ty {
        $real:ident => $serve:expr
    })*) => {$(
        $(#[$about])*
        ///
        /// # Safety
        /// As the C library's.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $kind),*) -> $value {
            static NEXT: Real = Real::new($text);
            let $real = || {
                let next = NEXT.get();
                // SAFETY: the C library's function of this name has this type.
                let next: unsafe extern "C" fn($($kind),*) -> $value = unsafe { std::mem::transmute(next) };
                // SAFETY: the caller's.
                unsafe { next($($arg),*) }
            };
            // SAFETY: the caller's.
            #[allow(unused_unsafe, reason = "some serve without")]
            unsafe { $serve }
        }
    )*};
}

pub(crate) use hooks;

/// What a function does that the C library does not have.
extern "C" fn missing() -> isize {
    set_errno(libc::ENOSYS);
    -1
}

/// Sets this thread's `errno`.
pub fn set_errno(error: i32) {
    // SAFETY: the C library's pointer to this thread's errno.
    unsafe { *libc::__errno_location() = error };
}

/// A system call that no function of the C library makes for the program: its result, or a negative error.
///
/// # Safety
/// As the call.
pub unsafe fn syscall(number: libc::c_long, arguments: [u64; 6]) -> i64 {
    let [a, b, c, d, e, f] = arguments;
    let result: i64;
    // SAFETY: the caller's; the kernel changes these two registers only.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
        );
    }
    result
}
