//! Reads a digit from Rust. The declarations are those of pyruntime.h, which bindgen can write, too.
use std::ffi::{c_char, c_void, CStr, CString};
use std::ptr;

#[repr(C)]
struct Tensor {
    name: *const c_char,
    element: i32,
    rank: i32,
    shape: *const i64,
    data: *const c_void,
    size: usize,
}

#[link(name = "pyruntime")]
extern "C" {
    fn pyruntime_open(path: *const c_char, options: *const c_char) -> i64;
    fn pyruntime_run(
        session: i64, inputs: *const Tensor, input_count: usize,
        output_names: *const *const c_char, output_count: usize, results: *mut *const Tensor,
    ) -> i32;
    fn pyruntime_free(results: *const Tensor);
    fn pyruntime_release(session: i64);
    fn pyruntime_error() -> *const c_char;
}

fn failure() -> String {
    let text = unsafe { pyruntime_error() };
    if text.is_null() { return "the interpreter did not start".into(); }
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn main() -> Result<(), String> {
    let (path, name) = (CString::new("digits.onnx").unwrap(), CString::new("image").unwrap());
    let session = unsafe { pyruntime_open(path.as_ptr(), ptr::null()) };
    if session == 0 { return Err(failure()); }

    let pixels = [0f32; 28 * 28]; // a blank
    let shape = [1i64, 1, 28, 28];
    let image = Tensor {
        name: name.as_ptr(), element: 1, rank: 4, shape: shape.as_ptr(),
        data: pixels.as_ptr().cast(), size: std::mem::size_of_val(&pixels),
    };
    let mut results: *const Tensor = ptr::null();
    if unsafe { pyruntime_run(session, &image, 1, ptr::null(), 0, &mut results) } < 0 { return Err(failure()); }

    let probabilities = unsafe { std::slice::from_raw_parts((*results).data.cast::<f32>(), 10) };
    let best = (0..10).max_by(|&a, &b| probabilities[a].total_cmp(&probabilities[b])).unwrap();
    println!("A blank is read as {best}.");
    unsafe {
        pyruntime_free(results);
        pyruntime_release(session);
    }
    Ok(())
}
