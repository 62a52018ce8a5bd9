//! Serves a virtual library on unix sockets until standard input ends: `vtl-serve DIR`.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: vtl-serve DIR")?);
    let library = vtl::Library::open(vtl::VtlConfig::new(&dir))?;
    let _server = vtl::serve(library, &dir.join("sockets"))?;
    println!("serving {}; close standard input to stop", dir.display());
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    Ok(())
}
